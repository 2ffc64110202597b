// SPDX-License-Identifier: Apache-2.0
// The fundamental types and state spaces of PTX.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millpond::softgpu::ptx {

enum class Type : uint8_t {
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,  // of registers only: two of 64 bits
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kF16x2,
  kBf16x2,
  kF32,
  kF64,
};

/// The type of a modifier such as ".s32"; none if it names no type that this engine knows.
std::optional<Type> typeNamed(std::string_view modifier);

/// Bits of a value; 1 for a predicate.
constexpr uint32_t bitsOf(Type type) {
  switch (type) {
    case Type::kPred: return 1;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8: return 8;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16: return 16;
    case Type::kB128: return 128;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64: return 64;
    default: return 32;
  }
}
constexpr uint32_t bytesOf(Type type) { return bitsOf(type) / 8; }
constexpr bool isSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}
constexpr bool isUnsigned(Type type) {
  return type == Type::kU8 || type == Type::kU16 || type == Type::kU32 || type == Type::kU64;
}
constexpr bool isInteger(Type type) { return isSigned(type) || isUnsigned(type); }
constexpr bool isBits(Type type) {
  return type == Type::kB8 || type == Type::kB16 || type == Type::kB32 || type == Type::kB64;
}
constexpr bool isFloat(Type type) { return static_cast<uint8_t>(type) >= static_cast<uint8_t>(Type::kF16); }
constexpr bool isHalf(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF16x2 || type == Type::kBf16x2;
}
/// The unsigned integer type of as many bits.
constexpr Type unsignedOf(uint32_t bits) {
  return bits == 8 ? Type::kU8 : bits == 16 ? Type::kU16 : bits == 32 ? Type::kU32 : Type::kU64;
}

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam };

/// Generic addresses: the top byte selects the window of an address; global, const and param addresses are plain
/// addresses of this process.
inline constexpr uint32_t kWindowShift = 56;
inline constexpr uint64_t kGlobalWindow = 0;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << kWindowShift;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << kWindowShift;
/// Addresses of functions: this window plus the function's index.
inline constexpr uint64_t kFunctionWindow = uint64_t{3} << kWindowShift;

}  // namespace millpond::softgpu::ptx
