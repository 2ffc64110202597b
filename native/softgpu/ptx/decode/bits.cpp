// SPDX-License-Identifier: Apache-2.0
// Bit operations, selections and comparisons.
#include <algorithm>

#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

Combine takeCombine(Modifiers& modifiers) {
  if (modifiers.take(".and")) return Combine::kAnd;
  if (modifiers.take(".or")) return Combine::kOr;
  if (modifiers.take(".xor")) return Combine::kXor;
  return Combine::kNone;
}

}  // namespace

void FunctionDecoder::logic(Node node) {
  Modifiers modifiers(node);
  Type type = modifiers.expectType();
  modifiers.finish();
  std::string_view name = node.opcode;
  bool isUnary = name == "not" || name == "cnot";
  Handler handler = nullptr;
  if (type == Type::kPred) {
    if (name == "cnot") modifiers.refuse();
    handler = select_.predicate(name == "and"   ? PredicateOp::kAnd
                                : name == "or"  ? PredicateOp::kOr
                                : name == "xor" ? PredicateOp::kXor
                                                : PredicateOp::kNot);
  } else {
    handler = select_.bit(name == "and"   ? BitOp::kAnd
                          : name == "or"  ? BitOp::kOr
                          : name == "xor" ? BitOp::kXor
                          : name == "not" ? BitOp::kNot
                                          : BitOp::kCnot,
                          unsignedOf(bitsOf(type)));
  }
  if (isUnary)
    elementwise(node, handler, type, {type});
  else
    elementwise(node, handler, type, {type, type});
}

void FunctionDecoder::shift(Node node) {
  Modifiers modifiers(node);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (isFloat(type) || type == Type::kPred) modifiers.refuse();
  elementwise(node, select_.bit(node.opcode == "shl" ? BitOp::kShl : BitOp::kShr, type), type, {type, Type::kU32});
}

void FunctionDecoder::countBits(Node node) {
  Modifiers modifiers(node);
  bool shiftAmount = modifiers.take(".shiftamt");
  Type type = modifiers.expectType();
  modifiers.finish();
  std::string_view name = node.opcode;
  if (shiftAmount && name != "bfind") modifiers.refuse();
  if (isFloat(type) || (isBits(type) && name == "bfind")) modifiers.refuse();
  BitOp op = name == "popc"   ? BitOp::kPopc
             : name == "clz"  ? BitOp::kClz
             : name == "brev" ? BitOp::kBrev
             : shiftAmount    ? BitOp::kBfindShift
                              : BitOp::kBfind;
  elementwise(node, select_.bit(op, type), op == BitOp::kBrev ? type : Type::kU32, {type});
}

void FunctionDecoder::bitField(Node node) {
  Modifiers modifiers(node);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (isFloat(type) || bitsOf(type) < 32) modifiers.refuse();
  if (node.opcode == "bfe") {
    elementwise(node, select_.bit(BitOp::kBfe, type), type, {type, Type::kU32, Type::kU32});
  } else {
    elementwise(node, select_.bit(BitOp::kBfi, type), type, {type, type, Type::kU32, Type::kU32});
  }
}

/// With a boolean operation, a predicate is whether any bit is set, combined with another.
void FunctionDecoder::lookup3(Node node) {
  Modifiers modifiers(node);
  const Combine combine = takeCombine(modifiers);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (type != Type::kB32) modifiers.refuse();
  const bool hasPredicate = combine != Combine::kNone;
  expectOperands(node, hasPredicate ? 6 : 5);
  const Operand& table = node.operands[4];
  if (table.kind != Operand::Kind::kInteger || table.bits > 255)
    syntaxError(node.line, "the lookup table of lop3 must be a constant below 256");
  const Operand& out = node.operands[0];
  if (hasPredicate != (out.kind == Operand::Kind::kPair))
    syntaxError(node.line,
                "lop3 has a predicate as its second result where it has a boolean operation, and only there");
  const uint32_t sources[] = {source(node.operands[1], type), source(node.operands[2], type),
                              source(node.operands[3], type)};
  const uint32_t other = hasPredicate ? predicateSource(node.operands[5]) : kNoOperand;
  const Operand& word = hasPredicate ? out.items[0] : out;
  const uint32_t result = word.kind == Operand::Kind::kSink ? temporary(32) : destination(word, 32);
  Draft& draft = emit(node, select_.bit(BitOp::kLop3, type));
  draft.instruction.op[0] = result;
  std::copy(std::begin(sources), std::end(sources), &draft.instruction.op[1]);
  draft.instruction.immediate = static_cast<int64_t>(table.bits);
  draft.writes = 1;
  if (!hasPredicate) return;
  const uint32_t predicate = destination(out.items[1], 1);
  Draft& compared = emit(node, select_.compare(CompareOp::kNe, type, false));
  compared.instruction.op[0] = predicate;
  compared.instruction.op[2] = result;
  compared.instruction.op[3] = module_.constants.number(0, 32);
  compared.instruction.op[4] = other;
  compared.instruction.immediate = static_cast<int64_t>(combine);
  compared.writes = 1;
}

void FunctionDecoder::funnelShift(Node node) {
  Modifiers modifiers(node);
  bool isLeft = modifiers.take(".l");
  if (!isLeft && !modifiers.take(".r")) modifiers.refuse();
  bool wraps = modifiers.take(".wrap");
  if (!wraps && !modifiers.take(".clamp")) modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (bitsOf(type) != 32) modifiers.refuse();
  BitOp op = isLeft ? (wraps ? BitOp::kShfLeftWrap : BitOp::kShfLeftClamp)
                    : (wraps ? BitOp::kShfRightWrap : BitOp::kShfRightClamp);
  elementwise(node, select_.bit(op, Type::kB32), type, {type, type, Type::kU32});
}

void FunctionDecoder::permute(Node node) {
  Modifiers modifiers(node);
  BitOp op = modifiers.take(".f4e")    ? BitOp::kPrmtF4e
             : modifiers.take(".b4e")  ? BitOp::kPrmtB4e
             : modifiers.take(".rc8")  ? BitOp::kPrmtRc8
             : modifiers.take(".ecl")  ? BitOp::kPrmtEcl
             : modifiers.take(".ecr")  ? BitOp::kPrmtEcr
             : modifiers.take(".rc16") ? BitOp::kPrmtRc16
                                       : BitOp::kPrmt;
  Type type = modifiers.expectType();
  modifiers.finish();
  if (bitsOf(type) != 32) modifiers.refuse();
  elementwise(node, select_.bit(op, Type::kB32), type, {type, type, type});
}

void FunctionDecoder::mask(Node node) {
  Modifiers modifiers(node);
  bool wraps = modifiers.take(".wrap");
  if (!wraps && !modifiers.take(".clamp")) modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (bitsOf(type) != 32) modifiers.refuse();
  BitOp op = node.opcode == "bmsk" ? (wraps ? BitOp::kBmskWrap : BitOp::kBmskClamp)
                                   : (wraps ? BitOp::kSzextWrap : BitOp::kSzextClamp);
  elementwise(node, select_.bit(op, type), type, {type, Type::kU32});
}

void FunctionDecoder::findNth(Node node) {
  Modifiers modifiers(node);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (type != Type::kB32) modifiers.refuse();
  elementwise(node, select_.bit(BitOp::kFns, type), type, {type, Type::kU32, Type::kS32});
}

void FunctionDecoder::select(Node node) {
  Modifiers modifiers(node);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (bitsOf(type) < 16) modifiers.refuse();
  elementwise(node, select_.bit(BitOp::kSelect, type), type, {type, type, Type::kPred});
}

namespace {

struct Comparison {
  CompareOp op;
  bool isUnsigned;  // .lo, .ls, .hi, .hs
};
std::optional<Comparison> takeComparison(Modifiers& modifiers) {
  static constexpr std::pair<std::string_view, Comparison> kNames[] = {
      {".eq", {CompareOp::kEq, false}},   {".ne", {CompareOp::kNe, false}},   {".lt", {CompareOp::kLt, false}},
      {".le", {CompareOp::kLe, false}},   {".gt", {CompareOp::kGt, false}},   {".ge", {CompareOp::kGe, false}},
      {".lo", {CompareOp::kLt, true}},    {".ls", {CompareOp::kLe, true}},    {".hi", {CompareOp::kGt, true}},
      {".hs", {CompareOp::kGe, true}},    {".equ", {CompareOp::kEqu, false}}, {".neu", {CompareOp::kNeu, false}},
      {".ltu", {CompareOp::kLtu, false}}, {".leu", {CompareOp::kLeu, false}}, {".gtu", {CompareOp::kGtu, false}},
      {".geu", {CompareOp::kGeu, false}}, {".num", {CompareOp::kNum, false}}, {".nan", {CompareOp::kNan, false}},
  };
  for (const auto& [name, comparison] : kNames) {
    if (modifiers.take(name)) return comparison;
  }
  return std::nullopt;
}

}  // namespace

void FunctionDecoder::compare(Node node) {
  Modifiers modifiers(node);
  std::optional<Comparison> comparison = takeComparison(modifiers);
  if (!comparison) modifiers.refuse();
  Combine combine = takeCombine(modifiers);
  bool flush = modifiers.take(".ftz");
  Type type = modifiers.expectType();
  modifiers.finish();
  if (comparison->isUnsigned) {
    if (isFloat(type)) modifiers.refuse();
    type = unsignedOf(bitsOf(type));
  }
  if (isBits(type) && comparison->op != CompareOp::kEq && comparison->op != CompareOp::kNe) modifiers.refuse();
  expectOperands(node, combine == Combine::kNone ? 3 : 4);
  uint32_t a = source(node.operands[1], type);
  uint32_t b = source(node.operands[2], type);
  uint32_t c = combine == Combine::kNone ? kNoOperand : predicateSource(node.operands[3]);
  Draft& draft = emit(node, select_.compare(comparison->op, type, flush));
  const Operand& out = node.operands[0];
  if (out.kind == Operand::Kind::kPair) {
    draft.instruction.op[0] = destination(out.items[0], 1);
    draft.instruction.op[1] = destination(out.items[1], 1);
    draft.writes = 3;
  } else {
    draft.instruction.op[0] = destination(out, 1);
    draft.writes = 1;
  }
  draft.instruction.op[2] = a;
  draft.instruction.op[3] = b;
  draft.instruction.op[4] = c;
  draft.instruction.immediate = static_cast<int64_t>(combine);
}

/// Like setp into temporary predicates, followed by selections of the value for true.
void FunctionDecoder::compareSet(Node node) {
  Modifiers modifiers(node);
  std::optional<Comparison> comparison = takeComparison(modifiers);
  if (!comparison) modifiers.refuse();
  Combine combine = takeCombine(modifiers);
  bool flush = modifiers.take(".ftz");
  Type result = modifiers.expectType();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (comparison->isUnsigned) type = unsignedOf(bitsOf(type));
  expectOperands(node, combine == Combine::kNone ? 3 : 4);
  uint32_t a = source(node.operands[1], type);
  uint32_t b = source(node.operands[2], type);
  uint32_t c = combine == Combine::kNone ? kNoOperand : predicateSource(node.operands[3]);
  bool isPair = type == Type::kF16x2 || type == Type::kBf16x2;
  uint64_t truth = 0;
  switch (result) {
    case Type::kF32: truth = 0x3f800000; break;
    case Type::kF16:
    case Type::kF16x2: truth = 0x3c00; break;
    case Type::kBf16:
    case Type::kBf16x2: truth = 0x3f80; break;
    case Type::kU32:
    case Type::kS32:
    case Type::kU16:
    case Type::kS16: truth = isPair ? 0xffff : ~uint64_t{0}; break;
    default: modifiers.refuse();
  }
  Draft& compared = emitUnguarded(node, select_.compare(comparison->op, type, flush));
  uint32_t low = temporary(1);
  uint32_t high = isPair ? temporary(1) : kNoOperand;
  compared.instruction.op[0] = low;
  compared.instruction.op[1] = high;
  compared.instruction.op[2] = a;
  compared.instruction.op[3] = b;
  compared.instruction.op[4] = c;
  compared.instruction.immediate = static_cast<int64_t>(combine);
  compared.writes = isPair ? 3 : 1;
  uint32_t width = registerWidth(result);
  auto choose = [&](uint32_t out, uint64_t value, uint32_t otherwise, uint32_t predicate, bool isLast) {
    Draft& draft = isLast ? emit(node, select_.bit(BitOp::kSelect, result))
                          : emitUnguarded(node, select_.bit(BitOp::kSelect, result));
    draft.instruction.op[0] = out;
    draft.instruction.op[1] = module_.constants.number(value, width);
    draft.instruction.op[2] = otherwise;
    draft.instruction.op[3] = predicate;
    draft.writes = 1;
  };
  uint32_t out = destination(node.operands[0], width);
  uint32_t zero = module_.constants.number(0, width);
  if (!isPair) return choose(out, truth, zero, low, true);
  if (width != 32) modifiers.refuse();
  // High half first; then adds the low half to the result, by choosing between two such values.
  uint32_t upper = temporary(32);
  uint32_t both = temporary(32);
  choose(upper, truth << 16, zero, high, false);
  choose(both, truth << 16 | truth, module_.constants.number(truth, 32), high, false);
  Draft& draft = emit(node, select_.bit(BitOp::kSelect, result));
  draft.instruction.op[0] = out;
  draft.instruction.op[1] = both;
  draft.instruction.op[2] = upper;
  draft.instruction.op[3] = low;
  draft.writes = 1;
}

void FunctionDecoder::selectBySign(Node node) {
  Modifiers modifiers(node);
  bool flush = modifiers.take(".ftz");
  Type type = modifiers.expectType();
  Type condition = modifiers.expectType();
  modifiers.finish();
  if (condition != Type::kF32 && condition != Type::kS32) modifiers.refuse();
  elementwise(node, select_.selectBySign(type, condition, flush), type, {type, type, condition}).instruction.immediate =
      flush;
}

}  // namespace millpond::softgpu::ptx
