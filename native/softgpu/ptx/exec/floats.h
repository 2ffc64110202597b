// SPDX-License-Identifier: Apache-2.0
// Floating-point helpers: flushing, saturation, NaN, and the 16-bit formats.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstdint>

#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/operations.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {

inline uint32_t bitsOfFloat(float x) { return __builtin_bit_cast(uint32_t, x); }
inline uint64_t bitsOfFloat(double x) { return __builtin_bit_cast(uint64_t, x); }
inline float floatOfBits(uint32_t x) { return __builtin_bit_cast(float, x); }
inline double floatOfBits(uint64_t x) { return __builtin_bit_cast(double, x); }

/// A subnormal number as zero of the same sign.
inline float flushed(float x) {
  uint32_t bits = bitsOfFloat(x);
  return floatOfBits(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}
inline double flushed(double x) { return x; }
/// The device's NaN: one pattern in 32 bits, the processor's own in 64.
inline float canonical(float x) { return x == x ? x : floatOfBits(0x7fffffffu); }
inline double canonical(double x) { return x; }
/// A signalling NaN made quiet, its payload kept.
inline double quieted(double x) { return x == x ? x : floatOfBits(bitsOfFloat(x) | uint64_t{1} << 51); }
inline float quieted(float x) { return canonical(x); }

template <typename T>
inline T saturated(T x) {
  T low = x > T{0} ? x : T{0};  // NaN becomes 0 too
  return low < T{1} ? low : T{1};
}

/// Whether a result that was rounded to the smallest normal number is actually below it, and must be flushed: `scaled`
/// is the same result times 2^64, where nothing is subnormal.
inline bool isTiny(float result, float scaled) {
  return (bitsOfFloat(result) & 0x7fffffffu) == 0x00800000u && (bitsOfFloat(scaled) & 0x7fffffffu) < 0x20800000u;
}
inline constexpr float kTinyScale = 0x1p64f;

// Operations whose results may be subnormal although their operands are not; see isTiny().
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
  static float scaled(float a, float b) { return a * kTinyScale * b; }
};
struct Divide {
  template <typename T>
  T operator()(T a, T b) const {
    return a / b;
  }
  static float scaled(float a, float b) { return a * kTinyScale / b; }
};
struct Reciprocal {
  template <typename T>
  T operator()(T a) const {
    return T{1} / a;
  }
  static float scaled(float a) { return kTinyScale / a; }
};
struct FusedMultiplyAdd {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
  static float scaled(float a, float b, float c) { return std::fma(a * kTinyScale, b, c * kTinyScale); }
};

/// The effects of modifiers on operands and the result.
template <bool kFlush, typename T>
inline T operandOf(T x) {
  if constexpr (kFlush)
    return flushed(x);
  else
    return x;
}
template <bool kFlush, bool kSaturate, typename T>
inline T resultOf(T x) {
  if constexpr (kSaturate)
    return saturated(operandOf<kFlush>(x));
  else
    return canonical(operandOf<kFlush>(x));
}

/// The smaller (or larger) operand; -0 is smaller than +0; the other operand where one is NaN.
template <typename T>
inline T minimum(T a, T b) {
  T result = a < b ? a : b;
  if (a == b) result = floatOfBits(bitsOfFloat(a) | bitsOfFloat(b));
  if (b != b) result = a;
  if (a != a) result = b;
  return quieted(result);
}
template <typename T>
inline T maximum(T a, T b) {
  T result = a > b ? a : b;
  if (a == b) result = floatOfBits(bitsOfFloat(a) & bitsOfFloat(b));
  if (b != b) result = a;
  if (a != a) result = b;
  return quieted(result);
}
template <typename T>
inline T notANumber() {
  if constexpr (sizeof(T) == 4)
    return floatOfBits(uint32_t{0x7fffffff});
  else
    return floatOfBits(uint64_t{0x7fffffffffffffff});
}

// The 16-bit formats.

struct Half {
  static constexpr uint32_t kExponentBits = 5;
  static constexpr uint32_t kMantissaBits = 10;
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kOne = 0x3c00;
};
struct Bfloat {
  static constexpr uint32_t kExponentBits = 8;
  static constexpr uint32_t kMantissaBits = 7;
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kOne = 0x3f80;
};

template <typename Format>
inline float decode(uint16_t value) {
  if constexpr (Format::kExponentBits == 8) {
    return floatOfBits(uint32_t{value} << 16);
  } else {
    uint32_t magnitude = uint32_t{value & 0x7fffu} << 13;
    // Exponents shift from bias 15 to bias 127 by a multiplication, which puts subnormal numbers right too.
    uint32_t bits = bitsOfFloat(floatOfBits(magnitude) * floatOfBits(uint32_t{(127 + 112) << 23}));
    if (magnitude >= 0x0f800000u) bits = magnitude | 0x7f800000u;
    return floatOfBits(bits | uint32_t{value & 0x8000u} << 16);
  }
}

/// The nearest number of the format in the direction of the rounding.
template <typename Format>
inline uint16_t encode(double value, Rounding rounding) {
  constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  constexpr uint32_t kInfinity = ((1u << Format::kExponentBits) - 1) << Format::kMantissaBits;
  uint64_t bits = bitsOfFloat(value);
  uint32_t sign = static_cast<uint32_t>(bits >> 63) << 15;
  if (value != value) return Format::kNan;
  int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 1024) return static_cast<uint16_t>(sign | kInfinity);
  if (exponent == -1023) {
    if (mantissa == 0) return static_cast<uint16_t>(sign);
    exponent = -1022;  // far below every format's range: it only matters that it is not zero
  } else {
    mantissa |= uint64_t{1} << 52;
  }
  int lost = 52 - static_cast<int>(Format::kMantissaBits);
  int target = exponent + kBias;
  if (target <= 0) {
    lost += 1 - target;
    target = 0;
  }
  uint64_t kept = lost > 62 ? 0 : mantissa >> lost;
  uint64_t rest = lost > 62 ? 1 : mantissa & ((uint64_t{1} << lost) - 1);
  uint64_t half = lost > 62 ? 2 : uint64_t{1} << (lost - 1);
  bool up = false;
  switch (rounding) {
    case Rounding::kNearestEven: up = rest > half || (rest == half && (kept & 1)); break;
    case Rounding::kNearestAway: up = rest >= half; break;
    case Rounding::kZero: break;
    case Rounding::kDown: up = sign && rest; break;
    case Rounding::kUp: up = !sign && rest; break;
  }
  // The hidden bit of a normal number adds one to the exponent field below it.
  uint64_t field = target > 0 ? (static_cast<uint64_t>(target - 1) << Format::kMantissaBits) + kept : kept;
  field += up;
  if (field >= kInfinity) {
    bool toInfinity = rounding == Rounding::kNearestEven || rounding == Rounding::kNearestAway ||
                      (rounding == Rounding::kUp && !sign) || (rounding == Rounding::kDown && sign);
    field = toInfinity ? kInfinity : kInfinity - 1;
  }
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(field));
}

/// The sum with its last bit set if it is inexact, so that rounding it again to a shorter format is correct.
inline double addToOdd(double a, double b) {
  double sum = a + b;
  double back = sum - a;
  double error = (a - (sum - back)) + (b - back);
  if (error == 0 || error != error || sum - sum != 0) return sum;
  uint64_t bits = bitsOfFloat(sum);
  if (bits & 1) return sum;
  return floatOfBits((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

/// Sets the host's rounding mode for its lifetime. Operations must read and write memory across its boundary.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding) : before_(std::fegetround()) {
    std::fesetround(rounding == Rounding::kZero   ? FE_TOWARDZERO
                    : rounding == Rounding::kDown ? FE_DOWNWARD
                    : rounding == Rounding::kUp   ? FE_UPWARD
                                                  : FE_TONEAREST);
  }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int before_;
};

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
