// SPDX-License-Identifier: Apache-2.0
// Building blocks of handlers: the same operation for all active lanes, in loops that the compiler
// vectorises. MILLPOND_EXEC names the namespace of the instruction set that this is compiled for.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "softgpu/ptx/run/context.h"
#include "softgpu/ptx/types.h"

#define MILLPOND_LANES(l) _Pragma("GCC ivdep") for (uint32_t l = 0; l < 32; ++l)

namespace millpond::softgpu::ptx::MILLPOND_EXEC {

alignas(64) inline constexpr uint32_t kLaneBit[32] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
    1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

/// The lanes of an operand: 32 values of T.
template <typename T>
inline T* slot(const Context& context, uint32_t operand) {
  return reinterpret_cast<T*>(context.bases[operand >> 31] + (operand & ~kConstant));
}
/// A predicate operand: a bit per lane.
inline uint32_t& predicate(const Context& context, uint32_t operand) { return *slot<uint32_t>(context, operand); }

inline uint32_t activeLanes(const Instruction* i, const Context& context) {
  uint32_t mask = context.mask;
  if (i->guard != kNoOperand) {
    uint32_t guard = predicate(context, i->guard & ~kNegatedGuard);
    mask &= i->guard & kNegatedGuard ? ~guard : guard;
  }
  return mask;
}

/// To be called where lanes do what threads do while they wait for others.
inline void noteWait(Context& context) {
  context.mayWait = true;
  if (context.budget > kSpinBudget) context.budget = kSpinBudget;
}

inline uint32_t lowestLane(uint32_t mask) { return static_cast<uint32_t>(__builtin_ctz(mask)); }

/// body(lane) for each lane of the mask, in order.
template <typename F>
inline void forLanes(uint32_t mask, F body) {
  for (; mask; mask &= mask - 1) body(lowestLane(mask));
}

/// d[lane] = value(lane) for the lanes of the mask; value() may be asked for other lanes too.
template <typename D, typename F>
inline void assign(uint32_t mask, D* d, F value) {
  if (mask == kAllLanes) [[likely]] {
    MILLPOND_LANES (l) d[l] = value(l);
  } else {
    MILLPOND_LANES (l) {
      D result = value(l);
      d[l] = mask & kLaneBit[l] ? result : d[l];
    }
  }
}
/// Like assign(), for values that are costly, or that cannot be computed for inactive lanes.
template <typename D, typename F>
inline void assignSparse(uint32_t mask, D* d, F value) {
  forLanes(mask, [&](uint32_t l) { d[l] = value(l); });
}

inline void assignPredicate(uint32_t mask, uint32_t& d, uint32_t value) { d = (d & ~mask) | (value & mask); }

/// The bits of 32 bytes that are 0 or 1.
inline uint32_t packBits(const uint8_t* bytes) {
#if defined(__AVX2__)
  __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_slli_epi16(all, 7)));
#elif defined(__SSE2__)
  __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16));
  return static_cast<uint32_t>(_mm_movemask_epi8(_mm_slli_epi16(low, 7))) |
         static_cast<uint32_t>(_mm_movemask_epi8(_mm_slli_epi16(high, 7))) << 16;
#else
  uint32_t out = 0;
  for (uint32_t l = 0; l < 32; ++l) out |= uint32_t{bytes[l]} << l;
  return out;
#endif
}
/// A bit per lane for which condition(lane) is true; evaluated for all lanes.
template <typename F>
inline uint32_t lanesWhere(F condition) {
  alignas(32) uint8_t bytes[32];
  MILLPOND_LANES (l) bytes[l] = condition(l) ? 1 : 0;
  return packBits(bytes);
}

// Handlers of operations on one, two, three and four operands. F is a function object without state.

template <typename D, typename A, typename F, bool kSparse>
const Instruction* unaryHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  D* d = slot<D>(context, i->op[0]);
  const A* a = slot<A>(context, i->op[1]);
  auto value = [=](uint32_t l) { return static_cast<D>(F{}(a[l])); };
  if constexpr (kSparse)
    assignSparse(mask, d, value);
  else
    assign(mask, d, value);
  return i + 1;
}
template <typename D, typename A, typename B, typename F, bool kSparse>
const Instruction* binaryHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  D* d = slot<D>(context, i->op[0]);
  const A* a = slot<A>(context, i->op[1]);
  const B* b = slot<B>(context, i->op[2]);
  auto value = [=](uint32_t l) { return static_cast<D>(F{}(a[l], b[l])); };
  if constexpr (kSparse)
    assignSparse(mask, d, value);
  else
    assign(mask, d, value);
  return i + 1;
}
template <typename D, typename A, typename B, typename C, typename F, bool kSparse>
const Instruction* ternaryHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  D* d = slot<D>(context, i->op[0]);
  const A* a = slot<A>(context, i->op[1]);
  const B* b = slot<B>(context, i->op[2]);
  const C* c = slot<C>(context, i->op[3]);
  auto value = [=](uint32_t l) { return static_cast<D>(F{}(a[l], b[l], c[l])); };
  if constexpr (kSparse)
    assignSparse(mask, d, value);
  else
    assign(mask, d, value);
  return i + 1;
}

template <typename D, typename A = D, bool kSparse = false, typename F>
constexpr Handler unary(F) {
  static_assert(std::is_empty_v<F>, "the operation must not need a state");
  return &unaryHandler<D, A, F, kSparse>;
}
template <typename D, typename A = D, typename B = A, bool kSparse = false, typename F>
constexpr Handler binary(F) {
  static_assert(std::is_empty_v<F>, "the operation must not need a state");
  return &binaryHandler<D, A, B, F, kSparse>;
}
template <typename D, typename A = D, typename B = A, typename C = D, bool kSparse = false, typename F>
constexpr Handler ternary(F) {
  static_assert(std::is_empty_v<F>, "the operation must not need a state");
  return &ternaryHandler<D, A, B, C, F, kSparse>;
}

template <typename T>
struct Tag {
  using type = T;
};
/// choose(Tag<T>) with the host type of an integer type; null for others.
template <typename F>
constexpr Handler forInteger(Type type, F choose) {
  switch (type) {
    case Type::kU16: return choose(Tag<uint16_t>{});
    case Type::kS16: return choose(Tag<int16_t>{});
    case Type::kU32: return choose(Tag<uint32_t>{});
    case Type::kS32: return choose(Tag<int32_t>{});
    case Type::kU64: return choose(Tag<uint64_t>{});
    case Type::kS64: return choose(Tag<int64_t>{});
    default: return nullptr;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
