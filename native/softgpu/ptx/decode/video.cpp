// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the bytes or halves of words: of all of them, as the compiler's SIMD intrinsics use it, or of one.
#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr std::pair<std::string_view, VideoOp> kOperations[] = {
    {"vadd", VideoOp::kAdd},        {"vsub", VideoOp::kSubtract},
    {"vavrg", VideoOp::kAverage},   {"vabsdiff", VideoOp::kDifference},
    {"vmin", VideoOp::kMinimum},    {"vmax", VideoOp::kMaximum},
    {"vset", VideoOp::kCompare},    {"vshl", VideoOp::kShiftLeft},
    {"vshr", VideoOp::kShiftRight}, {"vmad", VideoOp::kMultiplyAdd},
};

VideoOp operationNamed(std::string_view name) {
  for (const auto& [known, op] : kOperations)
    if (known == name) return op;
  return VideoOp::kAdd;
}

Order takeOrder(Modifiers& modifiers) {
  constexpr std::pair<std::string_view, Order> kOrders[] = {{".eq", Order::kEqual},   {".ne", Order::kUnequal},
                                                            {".lt", Order::kLess},    {".le", Order::kLessEqual},
                                                            {".gt", Order::kGreater}, {".ge", Order::kGreaterEqual}};
  for (const auto& [name, order] : kOrders)
    if (modifiers.take(name)) return order;
  modifiers.refuse();
}

bool takeSign(Modifiers& modifiers) {
  const Type type = modifiers.expectType();
  if (type != Type::kU32 && type != Type::kS32) modifiers.refuse();
  return type == Type::kS32;
}

/// The common beginning: saturation, and the types of the result and of a and b; comparisons have no result type.
VideoForm takeForm(Modifiers& modifiers, VideoOp op) {
  VideoForm form;
  form.op = op;
  form.saturates = modifiers.take(".sat");
  if (op == VideoOp::kCompare)
    form.order = takeOrder(modifiers);
  else
    form.isSignedResult = takeSign(modifiers);
  form.isSignedA = takeSign(modifiers);
  form.isSignedB = takeSign(modifiers);
  return form;
}

/// The part of a register that its suffix names; the suffix is removed.
VideoPart takePart(Operand& operand) {
  constexpr std::pair<std::string_view, VideoPart> kParts[] = {{".b0", VideoPart::kByte0}, {".b1", VideoPart::kByte1},
                                                               {".b2", VideoPart::kByte2}, {".b3", VideoPart::kByte3},
                                                               {".h0", VideoPart::kHalf0}, {".h1", VideoPart::kHalf1}};
  if (operand.kind != Operand::Kind::kName) return VideoPart::kWord;
  for (const auto& [suffix, part] : kParts) {
    if (!operand.name.ends_with(suffix)) continue;
    operand.name.remove_suffix(suffix.size());
    return part;
  }
  return VideoPart::kWord;
}

/// Whether an operand has a minus sign, which is removed.
bool takeMinus(Operand& operand) {
  if (operand.kind != Operand::Kind::kMinus) return false;
  operand = Operand(operand.items[0]);
  return true;
}

/// The signs of the factors and of the addend.
void takeMinuses(const InstructionNode& node, std::vector<Operand>& operands, ScalarVideoForm& form) {
  form.negatesProduct = takeMinus(operands[1]);
  form.negatesProduct ^= takeMinus(operands[2]);
  form.negatesThird = operands.size() > 3 && takeMinus(operands[3]);
  if (!form.negatesProduct && !form.negatesThird) return;
  form.first.isSignedResult = true;
  // Adding one to the complement is how the device negates.
  if (form.plusOne || (form.negatesProduct && form.negatesThird))
    syntaxError(node.line, quoted(node.fullName()) + " cannot negate here");
}

VideoSecond takeSecond(Modifiers& modifiers) {
  if (modifiers.take(".add")) return VideoSecond::kAdd;
  if (modifiers.take(".min")) return VideoSecond::kMinimum;
  return modifiers.take(".max") ? VideoSecond::kMaximum : VideoSecond::kNone;
}

}  // namespace

void FunctionDecoder::video(Node node) {
  Modifiers modifiers(node);
  const std::string_view name = node.opcode.substr(0, node.opcode.size() - 1);
  VideoForm form = takeForm(modifiers, operationNamed(name));
  form.isHalves = node.opcode.back() == '2';
  form.sums = modifiers.take(".add");
  modifiers.finish();
  for (const Operand& operand : node.operands) {
    // Selections of bytes, as in %r1.b3120, are not decoded.
    if (operand.kind == Operand::Kind::kName && operand.name.find('.') != std::string_view::npos) modifiers.refuse();
  }
  elementwise(node, select_.video(false), Type::kU32, {Type::kU32, Type::kU32, Type::kU32}).instruction.immediate =
      form.pack();
}

void FunctionDecoder::scalarVideo(Node node) {
  Modifiers modifiers(node);
  ScalarVideoForm form;
  const VideoOp op = operationNamed(node.opcode);
  const bool isProduct = op == VideoOp::kMultiplyAdd;
  form.first = takeForm(modifiers, op);
  if (isProduct) {
    form.plusOne = modifiers.take(".po");
    form.scale = modifiers.take(".shr7") ? 7 : modifiers.take(".shr15") ? 15 : 0;
    form.first.isSignedResult = form.first.isSignedA || form.first.isSignedB;
  } else {
    form.second = takeSecond(modifiers);
  }
  if (op == VideoOp::kShiftLeft || op == VideoOp::kShiftRight) {
    form.wraps = modifiers.take(".wrap");
    if (!form.wraps && !modifiers.take(".clamp")) modifiers.refuse();
  }
  modifiers.finish();
  InstructionNode plain = node;
  expectOperands(node, 3, 4);
  if (isProduct) takeMinuses(node, plain.operands, form);
  form.result = takePart(plain.operands[0]);
  form.a = takePart(plain.operands[1]);
  form.b = takePart(plain.operands[2]);
  const bool needsThird = isProduct || form.second != VideoSecond::kNone || form.result != VideoPart::kWord;
  expectOperands(node, needsThird ? 4 : 3);
  if (!needsThird) {
    Operand none;
    none.kind = Operand::Kind::kInteger;
    none.line = node.line;
    plain.operands.push_back(none);
  }
  elementwise(plain, select_.video(true), Type::kU32, {Type::kU32, Type::kU32, Type::kU32}).instruction.immediate =
      form.pack();
}

/// A number that is saturated into a part of `under`: the scalar sum with zero.
uint32_t FunctionDecoder::packPart(Node node, uint32_t value, uint32_t under, VideoPart part, bool isSigned,
                                   uint32_t out) {
  ScalarVideoForm form;
  form.first = {
      .op = VideoOp::kAdd, .isSignedA = true, .isSignedB = true, .isSignedResult = isSigned, .saturates = true};
  form.result = part;
  Draft& draft = emit(node, select_.video(true));
  draft.instruction.op[0] = out;
  draft.instruction.op[1] = value;
  draft.instruction.op[2] = module_.constants.number(0, 32);
  draft.instruction.op[3] = under;
  draft.instruction.immediate = form.pack();
  draft.writes = 1;
  return out;
}

/// Two words, saturated into the lower halves or bytes of one; the bytes shifted out of a third word come above them.
void FunctionDecoder::convertPacked(Node node, Modifiers& modifiers) {
  if (!modifiers.take(".sat")) modifiers.refuse();
  const Type to = modifiers.expectType();
  if (modifiers.expectType() != Type::kS32) modifiers.refuse();
  const bool hasThird = modifiers.take(".b32");
  modifiers.finish();
  const uint32_t bits = bitsOf(to);
  if (isFloat(to) || isBits(to) || (bits != 16 && bits != 8) || hasThird != (bits == 8)) modifiers.refuse();
  expectOperands(node, hasThird ? 4 : 3);
  const uint32_t a = source(node.operands[1], Type::kS32);
  const uint32_t b = source(node.operands[2], Type::kS32);
  uint32_t under = module_.constants.number(0, 32);
  if (hasThird) {
    const uint32_t third = source(node.operands[3], Type::kB32);
    Draft& draft = emitUnguarded(node, select_.bit(BitOp::kShl, Type::kB32));
    under = temporary(32);
    draft.instruction.op[0] = under;
    draft.instruction.op[1] = third;
    draft.instruction.op[2] = module_.constants.number(16, 32);
    draft.writes = 1;
  }
  const uint32_t upper =
      packPart(node, a, under, hasThird ? VideoPart::kByte1 : VideoPart::kHalf1, isSigned(to), temporary(32));
  packPart(node, b, upper, hasThird ? VideoPart::kByte0 : VideoPart::kHalf0, isSigned(to),
           destination(node.operands[0], 32));
}

}  // namespace millpond::softgpu::ptx
