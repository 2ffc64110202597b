// SPDX-License-Identifier: Apache-2.0
// Loads and stores.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#endif

#include <atomic>
#include <type_traits>

#include "softgpu/ptx/exec/locate.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

template <typename T, bool kAtomic>
T read(const std::byte* from) {
  if constexpr (kAtomic) {
    return __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_ACQUIRE);
  } else {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
}
template <typename T, bool kAtomic>
void write(std::byte* to, T value) {
  if constexpr (kAtomic) {
    __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELEASE);
  } else {
    std::memcpy(to, &value, sizeof(T));
  }
}

// Ordered accesses to vectors. A GPU performs up to 16 aligned bytes in one access, and programs rely on that: they
// pass a value and the word that announces it in a single access, as in CUB's scans and NCCL's protocols.

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
/// Its loads and stores are atomic on every processor with AVX: Intel and AMD guarantee that for aligned 16-byte
/// vectors.
struct Whole16 {
  __m128i value;
};
Whole16 readWhole(const Whole16* from) {
  const Whole16 whole{*static_cast<const volatile __m128i*>(&from->value)};
  std::atomic_signal_fence(std::memory_order_acquire);
  return whole;
}
void writeWhole(Whole16* to, Whole16 whole) {
  std::atomic_signal_fence(std::memory_order_release);
  *static_cast<volatile __m128i*>(&to->value) = whole.value;
}
#else
using Whole16 = unsigned __int128;
#endif
template <typename W>
W readWhole(const W* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
template <typename W>
void writeWhole(W* to, W value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

template <size_t kBytes>
using Whole =
    std::conditional_t<kBytes == 2, uint16_t,
                       std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 8, uint64_t, Whole16>>>;

/// Reads kBytes bytes of memory, aligned to kBytes, or to 16 if kBytes is larger.
template <size_t kBytes>
void readVector(const std::byte* from, void* values) {
  using W = Whole<kBytes>;
  for (size_t at = 0; at < kBytes; at += sizeof(W)) {
    const W whole = readWhole(reinterpret_cast<const W*>(from + at));
    std::memcpy(static_cast<std::byte*>(values) + at, &whole, sizeof(W));
  }
}
template <size_t kBytes>
void writeVector(std::byte* to, const void* values) {
  using W = Whole<kBytes>;
  for (size_t at = 0; at < kBytes; at += sizeof(W)) {
    W whole;
    std::memcpy(&whole, static_cast<const std::byte*>(values) + at, sizeof(W));
    writeWhole(reinterpret_cast<W*>(to + at), whole);
  }
}

/// Address of one lane's access to `bytes`.
std::byte* addressOf(const Lanes& lanes, uint32_t lane, size_t bytes) {
  switch (lanes.shape) {
    case Lanes::Shape::kUniform: return lanes.base;
    case Lanes::Shape::kContiguous: return lanes.base + lane * bytes;
    default: return lanes.lane[lane];
  }
}

template <typename T, typename R, uint32_t kCount>
void loadVectors(R* const (&d)[kCount], const Lanes& lanes) {
  for (uint32_t rest = lanes.mask; rest; rest &= rest - 1) {
    const uint32_t l = lowestLane(rest);
    T values[kCount];
    readVector<sizeof(values)>(addressOf(lanes, l, sizeof(values)), values);
    for (uint32_t k = 0; k < kCount; ++k) {
      if (d[k]) d[k][l] = static_cast<R>(values[k]);
    }
  }
}
template <typename T, typename R, uint32_t kCount>
void storeVectors(const R* const (&s)[kCount], const Lanes& lanes) {
  for (uint32_t rest = lanes.mask; rest; rest &= rest - 1) {
    const uint32_t l = lowestLane(rest);
    T values[kCount];
    for (uint32_t k = 0; k < kCount; ++k) values[k] = static_cast<T>(s[k][l]);
    writeVector<sizeof(values)>(addressOf(lanes, l, sizeof(values)), values);
  }
}

/// T in memory, extended to R in registers.
template <typename T, typename R, uint32_t kCount, bool kAtomic>
void loadLanes(const Instruction* i, Context& context, const Lanes& lanes) {
  R* d[kCount];
  for (uint32_t k = 0; k < kCount; ++k) d[k] = i->op[k] == kNoOperand ? nullptr : slot<R>(context, i->op[k]);
  if (kAtomic) noteWait(context);
  if constexpr (kAtomic && kCount > 1) return loadVectors<T>(d, lanes);
  switch (lanes.shape) {
    case Lanes::Shape::kUniform:
      for (uint32_t k = 0; k < kCount; ++k) {
        if (!d[k]) continue;
        R value = static_cast<R>(read<T, kAtomic>(lanes.base + k * sizeof(T)));
        assign(lanes.mask, d[k], [=](uint32_t) { return value; });
      }
      return;
    case Lanes::Shape::kContiguous:
      for (uint32_t k = 0; k < kCount; ++k) {
        if (!d[k]) continue;
        const std::byte* from = lanes.base + k * sizeof(T);
        MILLPOND_LANES (l) d[k][l] = static_cast<R>(read<T, kAtomic>(from + l * sizeof(T) * kCount));
      }
      return;
    case Lanes::Shape::kScattered:
      if (lanes.mask == kAllLanes) {
        for (uint32_t k = 0; k < kCount; ++k) {
          if (!d[k]) continue;
          MILLPOND_LANES (l) d[k][l] = static_cast<R>(read<T, kAtomic>(lanes.lane[l] + k * sizeof(T)));
        }
        return;
      }
      for (uint32_t rest = lanes.mask; rest; rest &= rest - 1) {
        uint32_t l = lowestLane(rest);
        for (uint32_t k = 0; k < kCount; ++k) {
          if (d[k]) d[k][l] = static_cast<R>(read<T, kAtomic>(lanes.lane[l] + k * sizeof(T)));
        }
      }
  }
}

/// The low part of R in registers, as T in memory.
template <typename T, typename R, uint32_t kCount, bool kAtomic>
void storeLanes(const Instruction* i, Context& context, const Lanes& lanes) {
  const R* s[kCount];
  for (uint32_t k = 0; k < kCount; ++k) s[k] = slot<R>(context, i->op[k]);
  if constexpr (kAtomic && kCount > 1) return storeVectors<T>(s, lanes);
  if (lanes.shape == Lanes::Shape::kContiguous) {
    for (uint32_t k = 0; k < kCount; ++k) {
      std::byte* to = lanes.base + k * sizeof(T);
      MILLPOND_LANES (l) write<T, kAtomic>(to + l * sizeof(T) * kCount, static_cast<T>(s[k][l]));
    }
    return;
  }
  for (uint32_t rest = lanes.mask; rest; rest &= rest - 1) {
    uint32_t l = lowestLane(rest);
    for (uint32_t k = 0; k < kCount; ++k) write<T, kAtomic>(lanes.lane[l] + k * sizeof(T), static_cast<T>(s[k][l]));
  }
}

template <Space kSpace, typename A>
const Instruction* loadHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  if (mask == 0) return i + 1;
  Lanes lanes;
  if (!locate<kSpace, A>(i, context, mask, false, lanes)) return nullptr;
  i->move(i, context, lanes);
  return i + 1;
}
template <Space kSpace, typename A>
const Instruction* storeHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  if (mask == 0) return i + 1;
  Lanes lanes;
  if (!locate<kSpace, A>(i, context, mask, true, lanes)) return nullptr;
  i->move(i, context, lanes);
  return i + 1;
}

template <typename T, typename R, bool kLoads>
Mover moverOf(uint32_t count, bool isAtomic) {
  if constexpr (sizeof(R) < sizeof(T)) {
    return nullptr;
  } else if constexpr (kLoads) {
    switch (count) {
      case 1: return isAtomic ? &loadLanes<T, R, 1, true> : &loadLanes<T, R, 1, false>;
      case 2: return isAtomic ? &loadLanes<T, R, 2, true> : &loadLanes<T, R, 2, false>;
      case 4: return isAtomic ? &loadLanes<T, R, 4, true> : &loadLanes<T, R, 4, false>;
      default: return nullptr;
    }
  } else {
    switch (count) {
      case 1: return isAtomic ? &storeLanes<T, R, 1, true> : &storeLanes<T, R, 1, false>;
      case 2: return isAtomic ? &storeLanes<T, R, 2, true> : &storeLanes<T, R, 2, false>;
      case 4: return isAtomic ? &storeLanes<T, R, 4, true> : &storeLanes<T, R, 4, false>;
      default: return nullptr;
    }
  }
}
template <typename T, bool kLoads>
Mover moverTo(uint32_t registerBits, uint32_t count, bool isAtomic) {
  switch (registerBits) {
    case 16: return moverOf<T, uint16_t, kLoads>(count, isAtomic);
    case 32: return moverOf<T, uint32_t, kLoads>(count, isAtomic);
    default: return moverOf<T, uint64_t, kLoads>(count, isAtomic);
  }
}

}  // namespace

Handler selectLoad(Space space, uint32_t addressBits) {
  if (addressBits == 32) {
    return space == Space::kShared  ? &loadHandler<Space::kShared, uint32_t>
           : space == Space::kLocal ? &loadHandler<Space::kLocal, uint32_t>
                                    : nullptr;
  }
  switch (space) {
    case Space::kGeneric: return &loadHandler<Space::kGeneric, uint64_t>;
    case Space::kGlobal: return &loadHandler<Space::kGlobal, uint64_t>;
    case Space::kConst: return &loadHandler<Space::kConst, uint64_t>;
    case Space::kShared: return &loadHandler<Space::kShared, uint64_t>;
    case Space::kLocal: return &loadHandler<Space::kLocal, uint64_t>;
    default: return &loadHandler<Space::kParam, uint64_t>;
  }
}

Handler selectStore(Space space, uint32_t addressBits) {
  if (addressBits == 32) {
    return space == Space::kShared  ? &storeHandler<Space::kShared, uint32_t>
           : space == Space::kLocal ? &storeHandler<Space::kLocal, uint32_t>
                                    : nullptr;
  }
  switch (space) {
    case Space::kGeneric: return &storeHandler<Space::kGeneric, uint64_t>;
    case Space::kGlobal: return &storeHandler<Space::kGlobal, uint64_t>;
    case Space::kShared: return &storeHandler<Space::kShared, uint64_t>;
    case Space::kLocal: return &storeHandler<Space::kLocal, uint64_t>;
    case Space::kParam: return &storeHandler<Space::kParam, uint64_t>;
    default: return nullptr;
  }
}

Mover selectLoadMover(Type type, uint32_t registerBits, uint32_t count, bool isAtomic) {
  switch (bitsOf(type)) {
    case 8:
      return isSigned(type) ? moverTo<int8_t, true>(registerBits, count, isAtomic)
                            : moverTo<uint8_t, true>(registerBits, count, isAtomic);
    case 16:
      return isSigned(type) ? moverTo<int16_t, true>(registerBits, count, isAtomic)
                            : moverTo<uint16_t, true>(registerBits, count, isAtomic);
    case 32:
      return isSigned(type) ? moverTo<int32_t, true>(registerBits, count, isAtomic)
                            : moverTo<uint32_t, true>(registerBits, count, isAtomic);
    case 64: return moverTo<uint64_t, true>(registerBits, count, isAtomic);
    default: return nullptr;
  }
}

Mover selectStoreMover(Type type, uint32_t registerBits, uint32_t count, bool isAtomic) {
  switch (bitsOf(type)) {
    case 8: return moverTo<uint8_t, false>(registerBits, count, isAtomic);
    case 16: return moverTo<uint16_t, false>(registerBits, count, isAtomic);
    case 32: return moverTo<uint32_t, false>(registerBits, count, isAtomic);
    case 64: return moverTo<uint64_t, false>(registerBits, count, isAtomic);
    default: return nullptr;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
