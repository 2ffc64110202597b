// SPDX-License-Identifier: Apache-2.0
// Atomics and reductions in memory. Blocks run on several threads of the host, so those of device memory are
// real atomics; shared and local memory belongs to one thread of the host at a time.
#include <type_traits>

#include "softgpu/ptx/exec/floats.h"
#include "softgpu/ptx/exec/locate.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

/// The number formats in which additions are performed, over the bits in memory.
struct SingleFormat {
  using Bits = uint32_t;
  static Bits add(Bits a, Bits b) { return bitsOfFloat(canonical(floatOfBits(a) + floatOfBits(b))); }
};
/// In device memory subnormal numbers are flushed, in shared memory they are not.
struct FlushedSingleFormat {
  using Bits = uint32_t;
  static Bits add(Bits a, Bits b) {
    return bitsOfFloat(canonical(flushed(flushed(floatOfBits(a)) + flushed(floatOfBits(b)))));
  }
};
struct DoubleFormat {
  using Bits = uint64_t;
  static Bits add(Bits a, Bits b) { return bitsOfFloat(floatOfBits(a) + floatOfBits(b)); }
};
template <typename Format>
struct SixteenFormat {
  using Bits = uint16_t;
  static Bits add(Bits a, Bits b) {
    return encode<Format>(addToOdd(static_cast<double>(decode<Format>(a)), static_cast<double>(decode<Format>(b))),
                          Rounding::kNearestEven);
  }
};
template <typename Format>
struct PairFormat {
  using Bits = uint32_t;
  static Bits add(Bits a, Bits b) {
    using One = SixteenFormat<Format>;
    uint32_t low = One::add(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
    uint32_t high = One::add(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16));
    return low | high << 16;
  }
};

template <AtomicOp kOp, typename T>
T combineIntegers(T old, T b, T c) {
  using U = std::make_unsigned_t<T>;
  switch (kOp) {
    case AtomicOp::kAdd: return static_cast<T>(static_cast<U>(old) + static_cast<U>(b));
    case AtomicOp::kMin: return b < old ? b : old;
    case AtomicOp::kMax: return old < b ? b : old;
    case AtomicOp::kAnd: return static_cast<T>(old & b);
    case AtomicOp::kOr: return static_cast<T>(old | b);
    case AtomicOp::kXor: return static_cast<T>(old ^ b);
    case AtomicOp::kExchange: return b;
    case AtomicOp::kCas: return old == b ? c : old;
    case AtomicOp::kIncrement: return old >= b ? T{0} : static_cast<T>(old + 1);
    default: return old == 0 || old > b ? b : static_cast<T>(old - 1);
  }
}

/// Replaces *at by change(*at), returns the old value.
template <bool kPlain, typename T, typename F>
T exchangeBy(T* at, F change) {
  if constexpr (kPlain) {
    T old = *at;
    *at = change(old);
    return old;
  } else {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, change(old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    return old;
  }
}

template <AtomicOp kOp, typename T, bool kPlain>
T exchangeInteger(T* at, T b, T c) {
  if constexpr (!kPlain) {
    switch (kOp) {
      case AtomicOp::kAdd: return __atomic_fetch_add(at, b, __ATOMIC_SEQ_CST);
      case AtomicOp::kAnd: return __atomic_fetch_and(at, b, __ATOMIC_SEQ_CST);
      case AtomicOp::kOr: return __atomic_fetch_or(at, b, __ATOMIC_SEQ_CST);
      case AtomicOp::kXor: return __atomic_fetch_xor(at, b, __ATOMIC_SEQ_CST);
      case AtomicOp::kExchange: return __atomic_exchange_n(at, b, __ATOMIC_SEQ_CST);
      case AtomicOp::kCas: {
        T expected = b;
        __atomic_compare_exchange_n(at, &expected, c, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        return expected;
      }
      default: break;
    }
  }
  return exchangeBy<kPlain>(at, [=](T old) { return combineIntegers<kOp, T>(old, b, c); });
}

/// d, -, -, -, address, b, and c in op[1]. An absent d makes it a reduction.
template <typename T, typename F>
const Instruction* atomicLanes(const Instruction* i, Context& context, F change) {
  uint32_t mask = activeLanes(i, context);
  if (mask == 0) return i + 1;
  Lanes lanes;
  if (!i->locate(i, context, mask, true, lanes)) return nullptr;
  const T* b = slot<T>(context, i->op[5]);
  const T* c = i->op[1] == kNoOperand ? b : slot<T>(context, i->op[1]);
  T* d = i->op[0] == kNoOperand ? nullptr : slot<T>(context, i->op[0]);
  if (d) noteWait(context);
  bool isScattered = lanes.shape == Lanes::Shape::kScattered;
  forLanes(mask, [&](uint32_t l) {
    std::byte* at = isScattered ? lanes.lane[l] : lanes.base + l * sizeof(T);
    T old = change(reinterpret_cast<T*>(at), b[l], c[l]);
    if (d) d[l] = old;
  });
  return i + 1;
}
template <AtomicOp kOp, typename T, bool kPlain>
const Instruction* integerHandler(const Instruction* i, Context& context) {
  return atomicLanes<T>(i, context, [](T* at, T b, T c) { return exchangeInteger<kOp, T, kPlain>(at, b, c); });
}
template <typename Format, bool kPlain>
const Instruction* addHandler(const Instruction* i, Context& context) {
  using T = typename Format::Bits;
  return atomicLanes<T>(
      i, context, [](T* at, T b, T) { return exchangeBy<kPlain>(at, [=](T old) { return Format::add(old, b); }); });
}

template <bool kPlain>
Handler ofBits(AtomicOp op, uint32_t bits) {
  using A = AtomicOp;
  if (bits == 16) return op == A::kCas ? &integerHandler<A::kCas, uint16_t, kPlain> : nullptr;
  if (bits != 32 && bits != 64) return nullptr;
  bool isWord = bits == 32;
  switch (op) {
    case A::kAnd:
      return isWord ? &integerHandler<A::kAnd, uint32_t, kPlain> : &integerHandler<A::kAnd, uint64_t, kPlain>;
    case A::kOr: return isWord ? &integerHandler<A::kOr, uint32_t, kPlain> : &integerHandler<A::kOr, uint64_t, kPlain>;
    case A::kXor:
      return isWord ? &integerHandler<A::kXor, uint32_t, kPlain> : &integerHandler<A::kXor, uint64_t, kPlain>;
    case A::kExchange:
      return isWord ? &integerHandler<A::kExchange, uint32_t, kPlain> : &integerHandler<A::kExchange, uint64_t, kPlain>;
    case A::kCas:
      return isWord ? &integerHandler<A::kCas, uint32_t, kPlain> : &integerHandler<A::kCas, uint64_t, kPlain>;
    default: return nullptr;
  }
}

template <typename T, bool kPlain>
Handler ofIntegers(AtomicOp op) {
  switch (op) {
    case AtomicOp::kAdd: return &integerHandler<AtomicOp::kAdd, std::make_unsigned_t<T>, kPlain>;
    case AtomicOp::kMin: return &integerHandler<AtomicOp::kMin, T, kPlain>;
    case AtomicOp::kMax: return &integerHandler<AtomicOp::kMax, T, kPlain>;
    default: break;
  }
  if constexpr (std::is_same_v<T, uint32_t>) {
    if (op == AtomicOp::kIncrement) return &integerHandler<AtomicOp::kIncrement, T, kPlain>;
    if (op == AtomicOp::kDecrement) return &integerHandler<AtomicOp::kDecrement, T, kPlain>;
  }
  return nullptr;
}

template <bool kPlain>
Handler atomicOf(AtomicOp op, Type type) {
  if (op == AtomicOp::kAdd) {
    switch (type) {
      case Type::kF16: return &addHandler<SixteenFormat<Half>, kPlain>;
      case Type::kBf16: return &addHandler<SixteenFormat<Bfloat>, kPlain>;
      case Type::kF16x2: return &addHandler<PairFormat<Half>, kPlain>;
      case Type::kBf16x2: return &addHandler<PairFormat<Bfloat>, kPlain>;
      case Type::kF32: return kPlain ? &addHandler<SingleFormat, kPlain> : &addHandler<FlushedSingleFormat, kPlain>;
      case Type::kF64: return &addHandler<DoubleFormat, kPlain>;
      default: break;
    }
  }
  switch (type) {
    case Type::kB16:
    case Type::kB32:
    case Type::kB64: return ofBits<kPlain>(op, bitsOf(type));
    case Type::kU32: return ofIntegers<uint32_t, kPlain>(op);
    case Type::kS32: return ofIntegers<int32_t, kPlain>(op);
    case Type::kU64: return ofIntegers<uint64_t, kPlain>(op);
    case Type::kS64: return ofIntegers<int64_t, kPlain>(op);
    default: return nullptr;
  }
}

}  // namespace

Handler selectAtomic(AtomicOp op, Type type, bool isShared) {
  return isShared ? atomicOf<true>(op, type) : atomicOf<false>(op, type);
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
