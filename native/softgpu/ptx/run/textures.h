// SPDX-License-Identifier: Apache-2.0
// Texture and surface instructions: their decoded form and its handler.
#pragma once

#include <cstdint>

#include "softgpu/ptx/run/context.h"

namespace millpond::softgpu::ptx {

enum class TextureOp : uint8_t { kSample, kGather, kLoad, kStore };
/// Behaviour of surface accesses outside: fault, use the nearest element, or read zero and write nothing.
enum class Boundary : uint8_t { kTrap, kClamp, kZero };

/// The selection of a level of a mipmapped texture: none, a level, gradients, or ignored gradients.
enum class Detail : uint8_t { kNone, kLevel, kGradients, kIgnored };

/// All modifiers, in Instruction::immediate.
struct TextureForm {
  TextureOp op = TextureOp::kSample;
  uint8_t dimensions = 1;
  bool isLayered = false;    // the first coordinate is the layer
  bool hasIntegers = false;  // coordinates are s32; else f32
  uint8_t component = 0;     // kGather: of which channel
  uint8_t bits = 32;         // kLoad, kStore: of one element of the vector, in memory
  uint8_t count = 4;         // of the vector
  Boundary boundary = Boundary::kTrap;
  bool isCube = false;  // the coordinates are a direction; behind the layer, if there is one
  Detail detail = Detail::kNone;

  /// A cube's direction has three coordinates, although its faces have two dimensions.
  constexpr uint32_t coordinates() const { return (isCube ? 3u : dimensions) + (isLayered ? 1u : 0u); }
  /// Values are passed in pairs of 64-bit registers; this many bits of them per element.
  constexpr uint32_t registerBits() const { return bits < 16 ? 16 : bits; }
  constexpr int64_t pack() const {
    return static_cast<int64_t>(op) | dimensions << 4 | isLayered << 8 | hasIntegers << 9 | component << 12 |
           int64_t{bits} << 16 | int64_t{count} << 24 | static_cast<int64_t>(boundary) << 28 | int64_t{isCube} << 30 |
           static_cast<int64_t>(detail) << 31;
  }
  static constexpr TextureForm unpack(int64_t bits) {
    auto field = [bits](int at, int64_t mask) { return static_cast<uint8_t>(bits >> at & mask); };
    return {static_cast<TextureOp>(field(0, 15)),
            field(4, 15),
            field(8, 1) != 0,
            field(9, 1) != 0,
            field(12, 15),
            field(16, 255),
            field(24, 15),
            static_cast<Boundary>(field(28, 3)),
            field(30, 1) != 0,
            static_cast<Detail>(field(31, 3))};
  }
};

/// op[0], op[1]: 128 bits of the result, or of the value to store; op[2]: the object; op[3], op[4]: up to four
/// coordinates of 32 bits; op[5]: the level, if one is given. Gradients come in op[0], by x, and op[1], by y. All
/// registers of 64 bits.
const Instruction* accessTexture(const Instruction* at, Context& context);

}  // namespace millpond::softgpu::ptx
