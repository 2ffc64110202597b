// SPDX-License-Identifier: Apache-2.0
// Conversions between types, and between registers of different widths.
#include <limits>
#include <type_traits>

#include "softgpu/ptx/exec/floats.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

/// Registers hold 8-bit values in 16 bits.
template <typename T>
using Stored = std::conditional_t<sizeof(T) == 1, uint16_t, T>;

template <typename F>
Handler forEveryInteger(Type type, F choose) {
  if (type == Type::kU8) return choose(Tag<uint8_t>{});
  if (type == Type::kS8) return choose(Tag<int8_t>{});
  return forInteger(type, choose);
}

template <typename D, typename S>
D clampTo(S value) {
  using Limits = std::numeric_limits<D>;
  if constexpr (std::is_signed_v<S>) {
    int64_t low = std::is_signed_v<D> ? static_cast<int64_t>(Limits::min()) : 0;
    if (static_cast<int64_t>(value) < low) return static_cast<D>(low);
    if (value < 0) return static_cast<D>(value);
  }
  return static_cast<uint64_t>(value) > static_cast<uint64_t>(Limits::max()) ? Limits::max() : static_cast<D>(value);
}

template <typename D, typename S>
Handler integerToInteger(bool saturate) {
  using StoredD = Stored<D>;
  using StoredS = Stored<S>;
  if (saturate) {
    return unary<StoredD, StoredS>([](StoredS a) { return static_cast<StoredD>(clampTo<D, S>(static_cast<S>(a))); });
  }
  return unary<StoredD, StoredS>([](StoredS a) { return static_cast<StoredD>(static_cast<D>(static_cast<S>(a))); });
}

template <Rounding kRounding, typename T>
T toIntegral(T value) {
  if constexpr (kRounding == Rounding::kNearestEven)
    return std::nearbyint(value);
  else if constexpr (kRounding == Rounding::kZero)
    return std::trunc(value);
  else if constexpr (kRounding == Rounding::kDown)
    return std::floor(value);
  else
    return std::ceil(value);
}

/// An integral floating-point number as an integer; the nearest integer if it is out of range.
template <typename D, typename T>
D clampFloat(T value) {
  constexpr int kDigits = std::numeric_limits<D>::digits;
  T high = static_cast<T>(uint64_t{1} << (kDigits - 1)) * 2;
  T low = std::is_signed_v<D> ? -high : T{0};
  bool isInside = value >= low && value < high;
  D inside = static_cast<D>(isInside ? value : T{0});
  D outside = value >= high ? std::numeric_limits<D>::max() : std::numeric_limits<D>::min();
  if (value != value) {
    // NaN becomes 0, or the top bit if one side has 64 bits.
    outside = sizeof(T) == 8 || sizeof(D) == 8 ? static_cast<D>(uint64_t{1} << (sizeof(D) * 8 - 1)) : D{0};
  }
  return isInside ? inside : outside;
}

template <typename Format>
struct Sixteen {
  using Stored = uint16_t;
  static float value(uint16_t x) { return decode<Format>(x); }
};
template <typename T>
struct Plain {
  using Stored = T;
  static T value(T x) { return x; }
};
template <typename How>
struct HowTag {
  using type = How;
};
template <typename F>
Handler forFloat(Type type, F choose) {
  switch (type) {
    case Type::kF16: return choose(HowTag<Sixteen<Half>>{});
    case Type::kBf16: return choose(HowTag<Sixteen<Bfloat>>{});
    case Type::kF32: return choose(HowTag<Plain<float>>{});
    case Type::kF64: return choose(HowTag<Plain<double>>{});
    default: return nullptr;
  }
}

template <typename D, typename How, Rounding kRounding, bool kFlush>
Handler floatToIntegerOf() {
  using S = typename How::Stored;
  return unary<Stored<D>, S>([](S a) {
    auto value = operandOf<kFlush>(How::value(a));
    return static_cast<Stored<D>>(clampFloat<D>(toIntegral<kRounding>(value)));
  });
}
template <typename D, typename How>
Handler floatToInteger(ConvertModes modes) {
  constexpr bool kCanFlush = std::is_same_v<How, Plain<float>>;
  bool flush = modes.flush && kCanFlush;
  switch (modes.rounding) {
    case Rounding::kNearestEven:
      return flush ? floatToIntegerOf<D, How, Rounding::kNearestEven, kCanFlush>()
                   : floatToIntegerOf<D, How, Rounding::kNearestEven, false>();
    case Rounding::kZero:
      return flush ? floatToIntegerOf<D, How, Rounding::kZero, kCanFlush>()
                   : floatToIntegerOf<D, How, Rounding::kZero, false>();
    case Rounding::kDown:
      return flush ? floatToIntegerOf<D, How, Rounding::kDown, kCanFlush>()
                   : floatToIntegerOf<D, How, Rounding::kDown, false>();
    case Rounding::kUp:
      return flush ? floatToIntegerOf<D, How, Rounding::kUp, kCanFlush>()
                   : floatToIntegerOf<D, How, Rounding::kUp, false>();
    default: return nullptr;
  }
}

/// To 16 bits from anything. Instruction::immediate: the rounding, kSaturateFlag, kReluFlag.
template <typename Format>
uint16_t encodeWith(double value, int64_t modes) {
  uint16_t out = encode<Format>(value, static_cast<Rounding>(modes & kRoundingBits));
  if (modes & kSaturateFlag) return value > 0 ? (value < 1 ? out : Format::kOne) : uint16_t{0};
  if ((modes & kReluFlag) && value == value && out & 0x8000u) return 0;
  return out;
}
template <typename Format, typename S, typename How>
const Instruction* toSixteenHandler(const Instruction* i, Context& context) {
  const S* a = slot<S>(context, i->op[1]);
  int64_t modes = i->immediate;
  assignSparse(activeLanes(i, context), slot<uint16_t>(context, i->op[0]),
               [=](uint32_t l) { return encodeWith<Format>(static_cast<double>(How::value(a[l])), modes); });
  return i + 1;
}
template <typename T>
struct IntegerHow {
  static T value(Stored<T> x) { return static_cast<T>(x); }
};
template <typename Format>
Handler toSixteen(Type from) {
  if (isFloat(from)) {
    return forFloat(from, [](auto tag) -> Handler {
      using How = typename decltype(tag)::type;
      return &toSixteenHandler<Format, typename How::Stored, How>;
    });
  }
  return forEveryInteger(from, [](auto tag) -> Handler {
    using T = typename decltype(tag)::type;
    // 64 bits do not fit a double exactly; beyond the range of f16 that does not matter.
    if (sizeof(T) == 8 && Format::kExponentBits == 8) return nullptr;
    return &toSixteenHandler<Format, Stored<T>, IntegerHow<T>>;
  });
}

/// Two numbers into a pair: the first becomes the high half.
template <typename Format>
const Instruction* packHandler(const Instruction* i, Context& context) {
  const float* high = slot<float>(context, i->op[1]);
  const float* low = slot<float>(context, i->op[2]);
  int64_t modes = i->immediate;
  assignSparse(activeLanes(i, context), slot<uint32_t>(context, i->op[0]), [=](uint32_t l) {
    return uint32_t{encodeWith<Format>(static_cast<double>(high[l]), modes)} << 16 |
           encodeWith<Format>(static_cast<double>(low[l]), modes);
  });
  return i + 1;
}

/// The upper 19 bits of a float. A carry out of the mantissa goes into the exponent, up to infinity.
template <Rounding kRounding, bool kRelu>
Handler toTf32() {
  constexpr uint32_t kCut = 0x1fff;
  return unary<uint32_t>([](uint32_t a) -> uint32_t {
    const uint32_t magnitude = a & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7fffffff;
    if (kRelu && magnitude != a) return 0;
    if constexpr (kRounding == Rounding::kNearestAway) return (a + (kCut + 1) / 2) & ~kCut;
    if constexpr (kRounding == Rounding::kNearestEven) return (a + kCut / 2 + (a >> 13 & 1)) & ~kCut;
    return a & ~kCut;
  });
}

template <typename T, bool kFlush, bool kSaturate>
Handler roundToIntegral(ConvertModes modes) {
  if (!modes.toInteger && !kFlush && !kSaturate) return unary<T>([](T a) { return a; });  // NaN also stays unchanged
  if (!modes.toInteger) return unary<T>([](T a) { return resultOf<kFlush, kSaturate>(operandOf<kFlush>(a)); });
  switch (modes.rounding) {
    case Rounding::kNearestEven:
      return unary<T>(
          [](T a) { return resultOf<kFlush, kSaturate>(toIntegral<Rounding::kNearestEven>(operandOf<kFlush>(a))); });
    case Rounding::kZero:
      return unary<T>(
          [](T a) { return resultOf<kFlush, kSaturate>(toIntegral<Rounding::kZero>(operandOf<kFlush>(a))); });
    case Rounding::kDown:
      return unary<T>(
          [](T a) { return resultOf<kFlush, kSaturate>(toIntegral<Rounding::kDown>(operandOf<kFlush>(a))); });
    default:
      return unary<T>([](T a) { return resultOf<kFlush, kSaturate>(toIntegral<Rounding::kUp>(operandOf<kFlush>(a))); });
  }
}
template <typename T>
Handler sameFloat(ConvertModes modes) {
  if (modes.flush)
    return modes.saturate ? roundToIntegral<T, true, true>(modes) : roundToIntegral<T, true, false>(modes);
  return modes.saturate ? roundToIntegral<T, false, true>(modes) : roundToIntegral<T, false, false>(modes);
}
template <typename Format>
Handler sameSixteen(ConvertModes modes) {
  if (!modes.toInteger)
    return toSixteen<Format>(sizeof(Format) && Format::kExponentBits == 5 ? Type::kF16 : Type::kBf16);
  switch (modes.rounding) {
    case Rounding::kNearestEven:
      return unary<uint16_t>([](uint16_t a) {
        return encode<Format>(static_cast<double>(std::nearbyint(decode<Format>(a))), Rounding::kNearestEven);
      });
    case Rounding::kZero:
      return unary<uint16_t>([](uint16_t a) {
        return encode<Format>(static_cast<double>(std::trunc(decode<Format>(a))), Rounding::kNearestEven);
      });
    case Rounding::kDown:
      return unary<uint16_t>([](uint16_t a) {
        return encode<Format>(static_cast<double>(std::floor(decode<Format>(a))), Rounding::kNearestEven);
      });
    default:
      return unary<uint16_t>([](uint16_t a) {
        return encode<Format>(static_cast<double>(std::ceil(decode<Format>(a))), Rounding::kNearestEven);
      });
  }
}

template <typename D, typename How>
Handler widen(ConvertModes modes) {
  using S = typename How::Stored;
  constexpr bool kSingle = std::is_same_v<How, Plain<float>> || std::is_same_v<D, float>;
  // NaN keeps its payload between 32 and 64 bits and from bf16, which is the upper half of 32 bits; it
  // becomes the device's own where .ftz looks at the source, and from f16.
  constexpr bool kFromHalf = std::is_same_v<How, Sixteen<Half>>;
  if (modes.flush && kSingle) {
    if (modes.saturate)
      return unary<D, S>([](S a) { return saturated(flushed(static_cast<D>(flushed(How::value(a))))); });
    return unary<D, S>([](S a) { return flushed(static_cast<D>(canonical(flushed(How::value(a))))); });
  }
  if (modes.saturate) return unary<D, S>([](S a) { return saturated(static_cast<D>(How::value(a))); });
  if (kFromHalf) return unary<D, S>([](S a) { return canonical(static_cast<D>(How::value(a))); });
  return unary<D, S>([](S a) { return static_cast<D>(How::value(a)); });
}

Handler floatToFloat(Type to, Type from, ConvertModes modes) {
  if (to == from) {
    switch (to) {
      case Type::kF16: return sameSixteen<Half>(modes);
      case Type::kBf16: return sameSixteen<Bfloat>(modes);
      case Type::kF32: return sameFloat<float>(modes);
      default: return sameFloat<double>(modes);
    }
  }
  if (modes.toInteger) return nullptr;
  switch (to) {
    case Type::kF16: return toSixteen<Half>(from);
    case Type::kBf16: return toSixteen<Bfloat>(from);
    case Type::kF32: return forFloat(from, [=](auto tag) { return widen<float, typename decltype(tag)::type>(modes); });
    default: return forFloat(from, [=](auto tag) { return widen<double, typename decltype(tag)::type>(modes); });
  }
}

template <typename D>
Handler integerToFloat(Type from, bool saturate) {
  return forEveryInteger(from, [=](auto tag) {
    using S = typename decltype(tag)::type;
    if (saturate) return unary<D, Stored<S>>([](Stored<S> a) { return saturated(static_cast<D>(static_cast<S>(a))); });
    return unary<D, Stored<S>>([](Stored<S> a) { return static_cast<D>(static_cast<S>(a)); });
  });
}

template <typename Value, typename To, typename From>
Handler extension() {
  return unary<To, From>([](From a) { return static_cast<To>(static_cast<Value>(a)); });
}
template <typename Value, typename To>
Handler extensionTo(uint32_t fromBits) {
  return fromBits == 16   ? extension<Value, To, uint16_t>()
         : fromBits == 32 ? extension<Value, To, uint32_t>()
                          : extension<Value, To, uint64_t>();
}

}  // namespace

Handler selectConvert(Type to, Type from, ConvertModes modes) {
  bool isPair = bitsOf(to) == 32 && isHalf(to);
  if (isPair || (bitsOf(from) == 32 && isHalf(from)) || isBits(to) || isBits(from)) return nullptr;
  if (isFloat(to) && isFloat(from)) {
    bool isNarrowing = to == Type::kF32 && from == Type::kF64;
    if (isNarrowing && modes.rounding != Rounding::kNearestEven) return selectRoundedConvert(to, from, modes);
    return floatToFloat(to, from, modes);
  }
  if (isFloat(from)) {
    return forEveryInteger(to, [=](auto toTag) {
      using D = typename decltype(toTag)::type;
      return forFloat(from, [=](auto tag) { return floatToInteger<D, typename decltype(tag)::type>(modes); });
    });
  }
  if (isFloat(to)) {
    if (to == Type::kF16) return toSixteen<Half>(from);
    if (to == Type::kBf16) return toSixteen<Bfloat>(from);
    if (modes.rounding != Rounding::kNearestEven && bitsOf(from) > 8) return selectRoundedConvert(to, from, modes);
    return to == Type::kF32 ? integerToFloat<float>(from, modes.saturate)
                            : integerToFloat<double>(from, modes.saturate);
  }
  return forEveryInteger(to, [=](auto toTag) {
    using D = typename decltype(toTag)::type;
    return forEveryInteger(from,
                           [=](auto tag) { return integerToInteger<D, typename decltype(tag)::type>(modes.saturate); });
  });
}

Handler selectPackConvert(Type to, ConvertModes) {
  return to == Type::kF16x2 ? &packHandler<Half> : to == Type::kBf16x2 ? &packHandler<Bfloat> : nullptr;
}

Handler selectTf32Convert(ConvertModes modes) {
  switch (modes.rounding) {
    case Rounding::kNearestEven:
      return modes.relu ? toTf32<Rounding::kNearestEven, true>() : toTf32<Rounding::kNearestEven, false>();
    case Rounding::kNearestAway: return modes.relu ? nullptr : toTf32<Rounding::kNearestAway, false>();
    case Rounding::kZero: return modes.relu ? toTf32<Rounding::kZero, true>() : toTf32<Rounding::kZero, false>();
    default: return nullptr;
  }
}

Handler selectExtend(Type type, uint32_t toBits, uint32_t fromBits) {
  return forEveryInteger(type, [=](auto tag) {
    using V = typename decltype(tag)::type;
    return toBits == 16   ? extensionTo<V, uint16_t>(fromBits)
           : toBits == 32 ? extensionTo<V, uint32_t>(fromBits)
                          : extensionTo<V, uint64_t>(fromBits);
  });
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
