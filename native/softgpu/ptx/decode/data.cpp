// SPDX-License-Identifier: Apache-2.0
// Moves, conversions and address conversions.
#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {

/// Between 128-bit registers, or one and the two halves of which it consists.
void FunctionDecoder::moveWide(Node node) {
  expectOperands(node, 2);
  const Operand& to = node.operands[0];
  const Operand& from = node.operands[1];
  const auto isPair = [](const Operand& operand) {
    return operand.kind == Operand::Kind::kVector && operand.items.size() == 2;
  };
  WideRegister parts;
  if (isPair(from))
    parts = {source(from.items[0], Type::kB64), source(from.items[1], Type::kB64)};
  else
    parts = wideRegister(from);
  // Both are read before either is written: they may be the same registers.
  for (uint32_t& part : parts) {
    Draft& draft = emitUnguarded(node, select_.bit(BitOp::kMove, Type::kU64));
    draft.instruction.op[1] = part;
    part = draft.instruction.op[0] = temporary(64);
    draft.writes = 1;
  }
  WideRegister out;
  if (isPair(to))
    out = {destination(to.items[0], 64), destination(to.items[1], 64)};
  else
    out = wideRegister(to);
  for (size_t k = 0; k < out.size(); ++k) {
    Draft& draft = emit(node, select_.bit(BitOp::kMove, Type::kU64));
    draft.instruction.op[0] = out[k];
    draft.instruction.op[1] = parts[k];
    draft.writes = 1;
  }
}

void FunctionDecoder::move(Node node) {
  Modifiers modifiers(node);
  if (modifiers.take(".b128")) {
    modifiers.finish();
    return moveWide(node);
  }
  Type type = modifiers.expectType();
  modifiers.finish();
  expectOperands(node, 2);
  const Operand& to = node.operands[0];
  const Operand& from = node.operands[1];
  if (to.kind == Operand::Kind::kVector) {
    size_t count = to.items.size();
    uint32_t width = registerWidth(type);
    uint32_t whole = source(from, type);
    Draft& draft = emit(node, select_.unpack(bitsOf(type), static_cast<uint32_t>(count)));
    uint32_t part = width / static_cast<uint32_t>(count) == 8 ? 16 : width / static_cast<uint32_t>(count);
    for (size_t i = 0; i < count; ++i) {
      if (to.items[i].kind == Operand::Kind::kSink) continue;
      draft.instruction.op[i] = destination(to.items[i], part);
      draft.writes = static_cast<uint8_t>(draft.writes | 1u << i);
    }
    draft.instruction.op[count] = whole;
    return;
  }
  if (from.kind == Operand::Kind::kVector) {
    uint32_t count = static_cast<uint32_t>(from.items.size());
    Handler handler = select_.pack(bitsOf(type), count);
    if (!handler) modifiers.refuse();
    uint32_t bits = bitsOf(type) / count;
    uint32_t parts[4];
    for (size_t i = 0; i < count; ++i) parts[i] = source(from.items[i], unsignedOf(bits));
    Draft& draft = emit(node, handler);
    draft.instruction.op[0] = destination(to, registerWidth(type));
    draft.writes = 1;
    for (size_t i = 0; i < count; ++i) draft.instruction.op[i + 1] = parts[i];
    return;
  }
  if (type == Type::kPred) {
    elementwise(node, select_.predicate(PredicateOp::kMove), type, {type});
    return;
  }
  if (bitsOf(type) < 16) modifiers.refuse();
  elementwise(node, select_.bit(BitOp::kMove, unsignedOf(bitsOf(type))), type, {type});
}

/// The operand in a register as wide as the type; wider registers are truncated.
uint32_t FunctionDecoder::narrowed(Node node, const Operand& operand, Type type) {
  uint32_t natural = registerWidth(type);
  if (operand.kind != Operand::Kind::kName) return source(operand, type);
  const Binding* binding = scopes_.find(scope_, operand.name);
  if (!binding || binding->kind != Binding::Kind::kRegister) return source(operand, type);
  uint32_t width = registerWidth(binding->type);
  if (width == natural) return binding->index;
  if (width < natural || width > 64 || isFloat(type)) return source(operand, type);  // reports what is wrong
  Type cut = unsignedOf(bitsOf(type));
  Draft& draft = emitUnguarded(node, select_.extend(cut, natural, width));
  uint32_t out = temporary(natural);
  draft.instruction.op[0] = out;
  draft.instruction.op[1] = binding->index;
  draft.writes = 1;
  return out;
}

void FunctionDecoder::convert(Node node) {
  Modifiers modifiers(node);
  if (modifiers.take(".pack")) return convertPacked(node, modifiers);
  ConvertModes modes;
  bool hasRounding = true;
  if (modifiers.take(".rni"))
    modes = {Rounding::kNearestEven, true};
  else if (modifiers.take(".rzi"))
    modes = {Rounding::kZero, true};
  else if (modifiers.take(".rmi"))
    modes = {Rounding::kDown, true};
  else if (modifiers.take(".rpi"))
    modes = {Rounding::kUp, true};
  else if (std::optional<Rounding> rounding = modifiers.takeRounding())
    modes.rounding = *rounding;
  else if (modifiers.take(".rna"))
    modes.rounding = Rounding::kNearestAway;
  else
    hasRounding = false;
  modes.flush = modifiers.take(".ftz");
  modes.saturate = modifiers.take(".sat");
  modes.relu = modifiers.take(".relu");
  if (modifiers.take(".tf32")) {
    if (modifiers.expectType() != Type::kF32 || !hasRounding || modes.toInteger || modes.flush || modes.saturate)
      modifiers.refuse();
    modifiers.finish();
    Handler handler = select_.tf32Convert(modes);
    if (!handler) modifiers.refuse();
    elementwise(node, handler, Type::kB32, {Type::kF32});
    return;
  }
  Type to = modifiers.expectType();
  Type from = modifiers.expectType();
  modifiers.finish();
  if (!hasRounding && isFloat(from) && isInteger(to)) modifiers.refuse();
  if (modes.relu && !isHalf(to)) modifiers.refuse();
  int64_t flags = static_cast<int64_t>(modes.rounding) | (modes.saturate ? kSaturateFlag : 0) |
                  (modes.flush ? kFlushFlag : 0) | (modes.relu ? kReluFlag : 0);
  if (to == Type::kF16x2 || to == Type::kBf16x2) {
    if (from != Type::kF32) modifiers.refuse();
    elementwise(node, select_.packConvert(to, modes), to, {from, from}).instruction.immediate = flags;
    return;
  }
  expectOperands(node, 2);
  Handler handler = select_.convert(to, from, modes);
  if (!handler) modifiers.refuse();
  uint32_t value = narrowed(node, node.operands[1], from);
  uint32_t natural = registerWidth(to);
  uint32_t width = natural;
  uint32_t out =
      node.operands[0].kind == Operand::Kind::kSink ? temporary(natural) : anyDestination(node.operands[0], width);
  if (width < natural || (width > natural && isFloat(to)))
    destination(node.operands[0], natural);  // reports what is wrong
  bool isWidened = width > natural;
  Draft& draft = isWidened ? emitUnguarded(node, handler) : emit(node, handler);
  uint32_t converted = isWidened ? temporary(natural) : out;
  draft.instruction.op[0] = converted;
  draft.instruction.op[1] = value;
  draft.instruction.immediate = flags;
  draft.writes = 1;
  if (!isWidened) return;
  Draft& extended = emit(node, select_.extend(to, width, natural));
  extended.instruction.op[0] = out;
  extended.instruction.op[1] = converted;
  extended.writes = 1;
}

void FunctionDecoder::convertAddress(Node node) {
  Modifiers modifiers(node);
  bool isFromGeneric = modifiers.take(".to");
  std::optional<Space> space = modifiers.takeSpace();
  if (!space) modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (type != Type::kU64) modifiers.refuse();
  uint64_t window = *space == Space::kShared ? kSharedWindow : *space == Space::kLocal ? kLocalWindow : kGlobalWindow;
  // The parameters of a called function are in local memory.
  if (*space == Space::kParam && !function_.isEntry) window = kLocalWindow;
  Handler handler = window == kGlobalWindow
                        ? select_.bit(BitOp::kMove, Type::kU64)
                        : select_.control(isFromGeneric ? ControlOp::kFromGeneric : ControlOp::kToGeneric);
  elementwise(node, handler, type, {type}).instruction.immediate = static_cast<int64_t>(window);
}

void FunctionDecoder::isSpace(Node node) {
  Modifiers modifiers(node);
  std::optional<Space> space = modifiers.takeSpace();
  if (!space) modifiers.refuse();
  modifiers.finish();
  elementwise(node, select_.control(ControlOp::kIsSpace), Type::kPred, {Type::kU64}).instruction.immediate =
      static_cast<int64_t>(*space);
}

}  // namespace millpond::softgpu::ptx
