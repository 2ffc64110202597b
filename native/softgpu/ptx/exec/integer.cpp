// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic.
#include <limits>
#include <type_traits>

#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

/// An unsigned type in which T's values are computed so that overflow is defined.
template <typename T>
using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <typename T>
struct DoubleOf {
  using type = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
};
template <>
struct DoubleOf<uint16_t> {
  using type = uint32_t;
};
template <>
struct DoubleOf<int16_t> {
  using type = int32_t;
};
template <typename T>
using Double = typename DoubleOf<T>::type;

template <typename T>
T wrap(Wide<T> value) {
  return static_cast<T>(value);
}
template <typename T>
T add(T a, T b) {
  return wrap<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
}
template <typename T>
T sub(T a, T b) {
  return wrap<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b));
}
template <typename T>
T mulLo(T a, T b) {
  return wrap<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
}
template <typename T>
T mulHi(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    using Huge = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>((static_cast<Huge>(a) * static_cast<Huge>(b)) >> 64);
  } else {
    return static_cast<T>((static_cast<Double<T>>(a) * static_cast<Double<T>>(b)) >> (sizeof(T) * 8));
  }
}
int32_t saturate(int64_t value) {
  value = value > INT32_MAX ? INT32_MAX : value;
  return static_cast<int32_t>(value < INT32_MIN ? INT32_MIN : value);
}
/// The product of the low 24 bits, 48 bits long.
template <typename T>
int64_t mul24(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    auto low = [](T x) { return static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(x) << 8) >> 8); };
    return low(a) * low(b);
  } else {
    return static_cast<int64_t>(uint64_t{a & 0xffffffu} * (b & 0xffffffu));
  }
}
template <typename T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return sub<T>(0, a);
  }
  return static_cast<T>(a / b);
}
// PTX leaves division by zero undefined; the device returns all ones.
template <typename T>
T remainder(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}
template <typename T>
T absolute(T a) {
  return a < 0 ? sub<T>(0, a) : a;
}

template <typename T>
Handler arithmetic(IntegerOp op) {
  switch (op) {
    case IntegerOp::kAdd: return binary<T>([](T a, T b) { return add<T>(a, b); });
    case IntegerOp::kSub: return binary<T>([](T a, T b) { return sub<T>(a, b); });
    case IntegerOp::kMulLo: return binary<T>([](T a, T b) { return mulLo<T>(a, b); });
    case IntegerOp::kMulHi: return binary<T>([](T a, T b) { return mulHi<T>(a, b); });
    case IntegerOp::kMadLo: return ternary<T>([](T a, T b, T c) { return add<T>(mulLo<T>(a, b), c); });
    case IntegerOp::kMadHi: return ternary<T>([](T a, T b, T c) { return add<T>(mulHi<T>(a, b), c); });
    case IntegerOp::kSad:
      return ternary<T>([](T a, T b, T c) { return add<T>(c, a < b ? sub<T>(b, a) : sub<T>(a, b)); });
    case IntegerOp::kDiv: return binary<T, T, T, true>([](T a, T b) { return divide<T>(a, b); });
    case IntegerOp::kRem: return binary<T, T, T, true>([](T a, T b) { return remainder<T>(a, b); });
    case IntegerOp::kMin: return binary<T>([](T a, T b) { return b < a ? b : a; });
    case IntegerOp::kMax: return binary<T>([](T a, T b) { return a < b ? b : a; });
    default: break;
  }
  if constexpr (std::is_signed_v<T>) {
    if (op == IntegerOp::kAbs) return unary<T>([](T a) { return absolute<T>(a); });
    if (op == IntegerOp::kNeg) return unary<T>([](T a) { return sub<T>(0, a); });
  }
  if constexpr (sizeof(T) < 8) {
    using D = Double<T>;
    if (op == IntegerOp::kMulWide) {
      return binary<D, T>([](T a, T b) { return static_cast<D>(a) * static_cast<D>(b); });
    }
    if (op == IntegerOp::kMadWide) {
      return ternary<D, T, T, D>([](T a, T b, D c) { return add<D>(static_cast<D>(a) * static_cast<D>(b), c); });
    }
  }
  if constexpr (sizeof(T) == 4) {
    switch (op) {
      case IntegerOp::kMul24Lo: return binary<T>([](T a, T b) { return static_cast<T>(mul24<T>(a, b)); });
      case IntegerOp::kMul24Hi: return binary<T>([](T a, T b) { return static_cast<T>(mul24<T>(a, b) >> 16); });
      case IntegerOp::kMad24Lo:
        return ternary<T>([](T a, T b, T c) { return add<T>(static_cast<T>(mul24<T>(a, b)), c); });
      case IntegerOp::kMad24Hi:
        return ternary<T>([](T a, T b, T c) { return add<T>(static_cast<T>(mul24<T>(a, b) >> 16), c); });
      default: break;
    }
  }
  if constexpr (std::is_same_v<T, int32_t>) {
    switch (op) {
      case IntegerOp::kAddSat: return binary<T>([](T a, T b) { return saturate(int64_t{a} + b); });
      case IntegerOp::kSubSat: return binary<T>([](T a, T b) { return saturate(int64_t{a} - b); });
      case IntegerOp::kMadHiSat: return ternary<T>([](T a, T b, T c) { return saturate(int64_t{mulHi<T>(a, b)} + c); });
      case IntegerOp::kMad24HiSat:
        return ternary<T>([](T a, T b, T c) { return saturate((mul24<T>(a, b) >> 16) + c); });
      default: break;
    }
  }
  return nullptr;
}

// Dot products: c plus the products of the bytes of b with the bytes (dp4a) or halves (dp2a) of a.

template <bool kSigned>
int32_t byteOf(uint32_t value, uint32_t index) {
  uint32_t byte = value >> (8 * index) & 0xff;
  return kSigned ? static_cast<int8_t>(byte) : static_cast<int32_t>(byte);
}
template <bool kSigned>
int32_t halfOf(uint32_t value, uint32_t index) {
  uint32_t half = value >> (16 * index) & 0xffff;
  return kSigned ? static_cast<int16_t>(half) : static_cast<int32_t>(half);
}
template <bool kA, bool kB>
uint32_t dot2(uint32_t a, uint32_t b, uint32_t c, uint32_t first) {
  for (uint32_t k = 0; k < 2; ++k) c += static_cast<uint32_t>(halfOf<kA>(a, k) * byteOf<kB>(b, first + k));
  return c;
}
template <bool kA, bool kB>
Handler dotHandler(DotOp op) {
  using T = uint32_t;
  switch (op) {
    case DotOp::kDot4:
      return ternary<T>([](T a, T b, T c) {
        for (uint32_t k = 0; k < 4; ++k) c += static_cast<T>(byteOf<kA>(a, k) * byteOf<kB>(b, k));
        return c;
      });
    case DotOp::kDot2Lo: return ternary<T>([](T a, T b, T c) { return dot2<kA, kB>(a, b, c, 0); });
    default: return ternary<T>([](T a, T b, T c) { return dot2<kA, kB>(a, b, c, 2); });
  }
}

// Extended precision: additions with carry. CC.CF is a bit per lane in the context. A subtraction adds the complement, and
// so sets it where it does not borrow: the compiler's 128-bit division reads with addc what subc.cc has left.

/// P is T, or the signed type of its size: only the high half of a product depends on the sign.
template <typename T, typename P, CarryOp kOp, bool kReads, bool kWrites>
const Instruction* carryHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  T* d = slot<T>(context, i->op[0]);
  const T* a = slot<T>(context, i->op[1]);
  const T* b = slot<T>(context, i->op[2]);
  uint32_t carry = context.carry;
  auto left = [=](uint32_t l) -> T {
    if constexpr (kOp == CarryOp::kMadLo)
      return static_cast<T>(a[l] * b[l]);
    else if constexpr (kOp == CarryOp::kMadHi)
      return static_cast<T>(mulHi<P>(static_cast<P>(a[l]), static_cast<P>(b[l])));
    else
      return a[l];
  };
  constexpr bool kIsMad = kOp == CarryOp::kMadLo || kOp == CarryOp::kMadHi;
  const T* right = kIsMad ? slot<T>(context, i->op[3]) : b;
  uint32_t out = 0;
  forLanes(mask, [&](uint32_t l) {
    constexpr bool kIsSub = kOp == CarryOp::kSub;
    const T y = kIsSub ? static_cast<T>(~right[l]) : right[l];
    const T in = kReads ? static_cast<T>(carry >> l & 1) : T{kIsSub};
    T partial;
    T result;
    bool overflow = __builtin_add_overflow(left(l), y, &partial);
    overflow |= __builtin_add_overflow(partial, in, &result);
    d[l] = result;
    if (overflow) out |= kLaneBit[l];
  });
  if constexpr (kWrites) context.carry = (carry & ~mask) | out;
  return i + 1;
}
template <typename T, typename P, CarryOp kOp>
Handler carryModes(CarryModes modes) {
  if (modes.readsCarry) {
    return modes.writesCarry ? &carryHandler<T, P, kOp, true, true> : &carryHandler<T, P, kOp, true, false>;
  }
  return modes.writesCarry ? &carryHandler<T, P, kOp, false, true> : nullptr;
}
template <typename T, typename P>
Handler carryOf(CarryOp op, CarryModes modes) {
  switch (op) {
    case CarryOp::kAdd: return carryModes<T, T, CarryOp::kAdd>(modes);
    case CarryOp::kSub: return carryModes<T, T, CarryOp::kSub>(modes);
    case CarryOp::kMadLo: return carryModes<T, T, CarryOp::kMadLo>(modes);
    default: return carryModes<T, P, CarryOp::kMadHi>(modes);
  }
}

}  // namespace

Handler selectInteger(IntegerOp op, Type type) {
  return forInteger(type, [=](auto tag) { return arithmetic<typename decltype(tag)::type>(op); });
}

Handler selectDot(DotOp op, bool isSignedA, bool isSignedB) {
  if (isSignedA) return isSignedB ? dotHandler<true, true>(op) : dotHandler<true, false>(op);
  return isSignedB ? dotHandler<false, true>(op) : dotHandler<false, false>(op);
}

Handler selectCarry(CarryOp op, Type type, CarryModes modes) {
  switch (type) {
    case Type::kU32: return carryOf<uint32_t, uint32_t>(op, modes);
    case Type::kS32: return carryOf<uint32_t, int32_t>(op, modes);
    case Type::kU64: return carryOf<uint64_t, uint64_t>(op, modes);
    case Type::kS64: return carryOf<uint64_t, int64_t>(op, modes);
    default: return nullptr;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
