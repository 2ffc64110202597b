// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces, by objects. Results, values and coordinates travel in pairs of 64-bit registers.
#include "softgpu/ptx/decode/function_decoder.h"
#include "softgpu/ptx/run/textures.h"

namespace millpond::softgpu::ptx {
namespace {

TextureForm takeGeometry(Modifiers& modifiers) {
  TextureForm form;
  if (modifiers.take(".1d")) {
    form.dimensions = 1;
  } else if (modifiers.take(".2d")) {
    form.dimensions = 2;
  } else if (modifiers.take(".3d")) {
    form.dimensions = 3;
  } else if (modifiers.take(".cube")) {
    form.isCube = true;
    form.dimensions = 2;
  } else {
    form.isLayered = true;
    form.dimensions = modifiers.take(".a1d") ? 1 : 2;
    form.isCube = modifiers.take(".acube");
    if (form.dimensions == 2 && !form.isCube && !modifiers.take(".a2d")) modifiers.refuse();  // several samples
  }
  return form;
}

}  // namespace

/// A register of 64 bits with `count` parts, of which the last may be missing.
uint32_t FunctionDecoder::packed(Node node, const std::vector<uint32_t>& parts) {
  const auto count = static_cast<uint32_t>(parts.size());
  if (count == 1) return parts[0];
  const uint32_t out = temporary(64);
  Draft& draft = emitUnguarded(node, select_.pack(64, count));
  draft.instruction.op[0] = out;
  for (uint32_t k = 0; k < count; ++k) draft.instruction.op[k + 1] = parts[k];
  draft.writes = 1;
  return out;
}

/// The object and the coordinates of an access; the operand is an address that contains both.
void FunctionDecoder::accessTexture(Node node, const Operand& operand, const TextureForm& form, const uint32_t* values,
                                    uint8_t writes, uint32_t level) {
  if (operand.kind != Operand::Kind::kAddress || operand.items.size() != 2 ||
      operand.items[1].kind != Operand::Kind::kVector || operand.offset != 0)
    unsupported(node.line, "this form of address in " + quoted(node.fullName()));
  const std::vector<Operand>& given = operand.items[1].items;
  const size_t needed = form.coordinates();
  // Three coordinates are written as four.
  if (given.size() != needed && !(needed == 3 && given.size() == 4))
    syntaxError(node.line, quoted(node.fullName()) + " needs " + std::to_string(needed) + " coordinates");
  const uint32_t object = source(operand.items[0], Type::kU64);
  std::vector<uint32_t> coordinates(4, module_.constants.number(0, 32));
  for (size_t k = 0; k < needed; ++k) {
    const bool isInteger = form.hasIntegers || (form.isLayered && k == 0);
    coordinates[k] = source(given[k], isInteger ? Type::kU32 : Type::kF32);
  }
  const uint32_t low = packed(node, {coordinates[0], coordinates[1]});
  const uint32_t high = packed(node, {coordinates[2], coordinates[3]});
  Draft& draft = emitUnguarded(node, &ptx::accessTexture);
  draft.instruction.op[0] = values[0];
  draft.instruction.op[1] = values[1];
  draft.instruction.op[2] = object;
  draft.instruction.op[3] = low;
  draft.instruction.op[4] = high;
  draft.instruction.op[5] = level;
  draft.instruction.immediate = form.pack();
  draft.writes = writes;
}

/// Operands for the level of detail: gradients go into `words`, a level into the register that is returned.
uint32_t FunctionDecoder::takeDetail(Node node, const TextureForm& form, const uint32_t* words) {
  const uint32_t none = module_.constants.number(0, 32);
  if (form.detail == Detail::kLevel)
    return packed(node, {source(node.operands[2], form.hasIntegers ? Type::kU32 : Type::kF32), none});
  if (form.detail != Detail::kGradients) return kNoOperand;
  for (size_t k = 0; k < 2; ++k) {
    const Operand& given = node.operands[2 + k];
    std::vector<uint32_t> parts(2, none);
    const std::vector<Operand> alone{given};
    const std::vector<Operand>& items = given.kind == Operand::Kind::kVector ? given.items : alone;
    if (items.size() != form.dimensions)
      syntaxError(node.line,
                  quoted(node.fullName()) + " needs gradients of " + std::to_string(form.dimensions) + " numbers");
    for (size_t d = 0; d < items.size(); ++d) parts[d] = source(items[d], Type::kF32);
    Draft& draft = emitUnguarded(node, select_.pack(64, 2));
    draft.instruction.op[0] = words[k];
    draft.instruction.op[1] = parts[0];
    draft.instruction.op[2] = parts[1];
    draft.writes = 1;
  }
  return kNoOperand;
}

/// Loads of a texture or surface, into `count` registers of `width` bits.
void FunctionDecoder::loadTexture(Node node, const TextureForm& form, uint32_t width, uint32_t count) {
  const Operand& to = node.operands[0];
  const bool isVector = to.kind == Operand::Kind::kVector;
  if (isVector ? to.items.size() != count : count != 1)
    syntaxError(node.line, "expected " + std::to_string(count) + " registers in braces");
  branchAround(node, [&] {
    const uint32_t words[2] = {temporary(64), temporary(64)};
    accessTexture(node, node.operands[1], form, words, 3, takeDetail(node, form, words));
    const uint32_t perWord = 64 / width;
    for (uint32_t first = 0; first < count; first += perWord) {
      Draft& draft =
          emitUnguarded(node, perWord == 1 ? select_.bit(BitOp::kMove, Type::kU64) : select_.unpack(64, perWord));
      for (uint32_t k = 0; k < perWord && first + k < count; ++k) {
        const Operand& item = isVector ? to.items[first + k] : to;
        if (item.kind == Operand::Kind::kSink) continue;
        draft.instruction.op[k] = destination(item, width);
        draft.writes = static_cast<uint8_t>(draft.writes | 1u << k);
      }
      // All its destinations are the sink `_`, but a move needs one.
      if (perWord == 1 && draft.writes == 0) {
        draft.instruction.op[0] = temporary(64);
        draft.writes = 1;
      }
      draft.instruction.op[perWord] = words[first / perWord];
    }
  });
}

void FunctionDecoder::texture(Node node) {
  Modifiers modifiers(node);
  const bool isGather = node.opcode == "tld4";
  const bool hasLevel = !isGather && modifiers.take(".level");
  const bool hasGradients = !isGather && !hasLevel && modifiers.take(".grad");
  const bool hasBase = !isGather && modifiers.take(".base");
  uint8_t component = 0;
  if (isGather) {
    static constexpr std::string_view kChannels[] = {".r", ".g", ".b", ".a"};
    while (component < 4 && !modifiers.take(kChannels[component])) ++component;
    if (component == 4) modifiers.refuse();
  }
  TextureForm form = takeGeometry(modifiers);
  form.op = isGather ? TextureOp::kGather : TextureOp::kSample;
  form.component = component;
  if (modifiers.takeVector() != 4) modifiers.refuse();
  const Type result = modifiers.expectType();
  const Type coordinate = modifiers.expectType();
  modifiers.finish();
  if (result != Type::kF32 && result != Type::kU32 && result != Type::kS32) modifiers.refuse();
  if (coordinate != Type::kF32 && coordinate != Type::kS32) modifiers.refuse();
  // In three dimensions and for cubes no level is computed from gradients: they are for textures without levels there.
  const bool areGradientsKnown = !form.isCube && form.dimensions < 3;
  form.detail = hasLevel            ? Detail::kLevel
                : !hasGradients     ? Detail::kNone
                : areGradientsKnown ? Detail::kGradients
                                    : Detail::kIgnored;
  if (hasBase || (isGather && (form.dimensions != 2 || coordinate != Type::kF32))) modifiers.refuse();
  form.hasIntegers = coordinate == Type::kS32;
  if (form.isCube && (isGather || form.hasIntegers)) modifiers.refuse();
  expectOperands(node, 2 + (hasLevel ? 1u : 0u) + (hasGradients ? 2u : 0u));
  loadTexture(node, form, 32, 4);
}

void FunctionDecoder::surface(Node node) {
  Modifiers modifiers(node);
  if (!modifiers.take(".b")) modifiers.refuse();  // formatted
  TextureForm form = takeGeometry(modifiers);
  if (form.isCube) modifiers.refuse();  // faces are layers there
  form.op = node.opcode == "sust" ? TextureOp::kStore : TextureOp::kLoad;
  form.hasIntegers = true;
  modifiers.takeCacheHints();
  form.boundary = modifiers.take(".clamp")  ? Boundary::kClamp
                  : modifiers.take(".zero") ? Boundary::kZero
                                            : Boundary::kTrap;
  modifiers.take(".trap");
  form.count = static_cast<uint8_t>(modifiers.takeVector());
  const Type type = modifiers.expectType();
  modifiers.finish();
  form.bits = static_cast<uint8_t>(bitsOf(type));
  if (isFloat(type) || form.bits < 8 || form.bits * form.count > 128) modifiers.refuse();
  expectOperands(node, 2);
  const uint32_t width = form.registerBits();
  if (form.op == TextureOp::kLoad) return loadTexture(node, form, width, form.count);
  const Operand& from = node.operands[1];
  const bool isVector = from.kind == Operand::Kind::kVector;
  if (isVector ? from.items.size() != form.count : form.count != 1)
    syntaxError(node.line, "expected " + std::to_string(form.count) + " values in braces");
  branchAround(node, [&] {
    const uint32_t perWord = 64 / width;
    const uint32_t none = module_.constants.number(0, width);
    uint32_t words[2];
    for (uint32_t w = 0; w < 2; ++w) {
      std::vector<uint32_t> parts(perWord, none);
      for (uint32_t k = 0; k < perWord && w * perWord + k < form.count; ++k)
        parts[k] = source(isVector ? from.items[w * perWord + k] : from, unsignedOf(width));
      words[w] = packed(node, parts);
    }
    accessTexture(node, node.operands[0], form, words, 0);
  });
}

}  // namespace millpond::softgpu::ptx
