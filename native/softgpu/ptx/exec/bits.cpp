// SPDX-License-Identifier: Apache-2.0
// Operations on bit patterns and predicates.
#include <bit>
#include <type_traits>

#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

template <typename T>
constexpr uint32_t kBits = sizeof(T) * 8;

template <typename T>
T shiftLeft(T a, uint32_t count) {
  return count >= kBits<T> ? T{0} : static_cast<T>(static_cast<uint64_t>(a) << count);
}
template <typename T>
T shiftRight(T a, uint32_t count) {
  if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(a >> (count >= kBits<T> ? kBits<T> - 1 : count));
  } else {
    return count >= kBits<T> ? T{0} : static_cast<T>(a >> count);
  }
}

/// `count` low bits set; all of them from 64 on.
uint64_t lowMask(uint32_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

/// Position or length of a bit field: for 32-bit types the low byte counts; for 64-bit types, for which the device has
/// no such instruction, all of it.
template <typename T>
uint32_t fieldOperand(uint32_t value) {
  constexpr uint32_t kLarge = 128;
  if constexpr (sizeof(T) == 4)
    return value & 0xff;
  else
    return value < kLarge ? value : kLarge;
}
template <typename T>
T extractField(T a, uint32_t position, uint32_t length) {
  using U = std::make_unsigned_t<T>;
  position = fieldOperand<T>(position);
  length = fieldOperand<T>(length);
  if (length == 0) return 0;
  constexpr uint32_t kTop = kBits<T> - 1;
  U field = position > kTop ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
  bool sign = false;
  if constexpr (std::is_signed_v<T>) {
    uint32_t at = position + length - 1;
    sign = static_cast<U>(a) >> (at > kTop ? kTop : at) & 1;
  }
  // The field ends at its length or at the top of the source; the bits above it are copies of the sign.
  uint32_t available = position > kTop ? 0 : kBits<T> - position;
  U keep = static_cast<U>(lowMask(length < available ? length : available));
  field = static_cast<U>(field & keep);
  return static_cast<T>(sign ? static_cast<U>(field | static_cast<U>(~keep)) : field);
}
template <typename T>
T insertField(T a, T b, uint32_t position, uint32_t length) {
  position = fieldOperand<T>(position);
  length = fieldOperand<T>(length);
  if (position >= kBits<T>) return b;
  T mask = static_cast<T>(static_cast<T>(lowMask(length)) << position);
  return static_cast<T>((b & static_cast<T>(~mask)) | (static_cast<T>(a << position) & mask));
}
template <typename T>
uint32_t highestBit(T a) {
  using U = std::make_unsigned_t<T>;
  U value = static_cast<U>(a);
  if constexpr (std::is_signed_v<T>) {
    if (a < 0) value = static_cast<U>(~value);
  }
  return value == 0 ? UINT32_MAX : kBits<T> - 1 - static_cast<uint32_t>(std::countl_zero(value));
}
template <typename T>
T reverse(T a) {
  uint64_t v = a;
  v = (v >> 1 & 0x5555555555555555u) | (v & 0x5555555555555555u) << 1;
  v = (v >> 2 & 0x3333333333333333u) | (v & 0x3333333333333333u) << 2;
  v = (v >> 4 & 0x0f0f0f0f0f0f0f0fu) | (v & 0x0f0f0f0f0f0f0f0fu) << 4;
  return static_cast<T>(__builtin_bswap64(v) >> (64 - kBits<T>));
}
/// Position of the n-th set bit from `base` on, upwards for n > 0 and downwards for n < 0.
uint32_t findNthSet(uint32_t mask, uint32_t base, int32_t n) {
  if (base > 31) return UINT32_MAX;
  int64_t left = n < 0 ? -int64_t{n} : n;
  int step = n < 0 ? -1 : 1;
  if (n == 0) return mask >> base & 1 ? base : UINT32_MAX;
  for (int32_t at = static_cast<int32_t>(base); at >= 0 && at < 32; at += step) {
    if ((mask >> at & 1) && --left == 0) return static_cast<uint32_t>(at);
  }
  return UINT32_MAX;
}
uint32_t funnel(uint32_t low, uint32_t high, uint32_t count, bool isLeft) {
  uint64_t both = uint64_t{high} << 32 | low;
  return isLeft ? static_cast<uint32_t>(both << count >> 32) : static_cast<uint32_t>(both >> count);
}
uint32_t clampTo32(uint32_t count) { return count > 32 ? 32 : count; }

/// Byte `selector & 7` of b:a, or its sign bit eight times if the selector requests that.
uint32_t permuteByte(uint64_t both, uint32_t selector) {
  uint32_t byte = static_cast<uint32_t>(both >> (8 * (selector & 7))) & 0xff;
  return selector & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte;
}
uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors) {
  uint64_t both = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (uint32_t k = 0; k < 4; ++k) out |= permuteByte(both, selectors >> (4 * k) & 0xf) << (8 * k);
  return out;
}
/// The four selectors of a named mode, a nibble per result byte, for c & 3 = 0 to 3.
template <uint32_t k0, uint32_t k1, uint32_t k2, uint32_t k3>
uint32_t permuteMode(uint32_t a, uint32_t b, uint32_t c) {
  constexpr uint32_t kSelectors[4] = {k0, k1, k2, k3};
  return permute(a, b, kSelectors[c & 3]);
}

/// T is an unsigned type, or a signed one where the sign matters.
template <typename T>
Handler bitsOfType(BitOp op) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case BitOp::kMove: return unary<U>([](U a) { return a; });
    case BitOp::kAnd: return binary<U>([](U a, U b) { return static_cast<U>(a & b); });
    case BitOp::kOr: return binary<U>([](U a, U b) { return static_cast<U>(a | b); });
    case BitOp::kXor: return binary<U>([](U a, U b) { return static_cast<U>(a ^ b); });
    case BitOp::kNot: return unary<U>([](U a) { return static_cast<U>(~a); });
    case BitOp::kCnot: return unary<U>([](U a) { return static_cast<U>(a == 0); });
    case BitOp::kShl: return binary<U, U, uint32_t>([](U a, uint32_t b) { return shiftLeft<U>(a, b); });
    case BitOp::kShr: return binary<T, T, uint32_t>([](T a, uint32_t b) { return shiftRight<T>(a, b); });
    default: break;
  }
  if constexpr (sizeof(T) >= 4) {
    switch (op) {
      case BitOp::kPopc: return unary<uint32_t, U>([](U a) { return static_cast<uint32_t>(std::popcount(a)); });
      case BitOp::kClz: return unary<uint32_t, U>([](U a) { return static_cast<uint32_t>(std::countl_zero(a)); });
      case BitOp::kBfind: return unary<uint32_t, T>([](T a) { return highestBit<T>(a); });
      case BitOp::kBfindShift:
        return unary<uint32_t, T>([](T a) {
          uint32_t bit = highestBit<T>(a);
          return bit == UINT32_MAX ? bit : kBits<T> - 1 - bit;
        });
      case BitOp::kBrev: return unary<U>([](U a) { return reverse<U>(a); });
      case BitOp::kBfe:
        return ternary<T, T, uint32_t, uint32_t>([](T a, uint32_t b, uint32_t c) { return extractField<T>(a, b, c); });
      default: break;
    }
  }
  return nullptr;
}

template <typename T>
const Instruction* insertHandler(const Instruction* i, Context& context) {
  const T* a = slot<T>(context, i->op[1]);
  const T* b = slot<T>(context, i->op[2]);
  const uint32_t* position = slot<uint32_t>(context, i->op[3]);
  const uint32_t* length = slot<uint32_t>(context, i->op[4]);
  assign(activeLanes(i, context), slot<T>(context, i->op[0]),
         [=](uint32_t l) { return insertField<T>(a[l], b[l], position[l], length[l]); });
  return i + 1;
}

const Instruction* lop3Handler(const Instruction* i, Context& context) {
  const uint32_t* a = slot<uint32_t>(context, i->op[1]);
  const uint32_t* b = slot<uint32_t>(context, i->op[2]);
  const uint32_t* c = slot<uint32_t>(context, i->op[3]);
  uint32_t* d = slot<uint32_t>(context, i->op[0]);
  uint32_t mask = activeLanes(i, context);
  // Minterm k of the truth table, spread over all bits.
  uint32_t term[8];
  for (uint32_t k = 0; k < 8; ++k) term[k] = i->immediate >> k & 1 ? UINT32_MAX : 0;
  assign(mask, d, [=](uint32_t l) {
    uint32_t x = a[l];
    uint32_t y = b[l];
    uint32_t z = c[l];
    uint32_t low = (~y & ((~z & term[0]) | (z & term[1]))) | (y & ((~z & term[2]) | (z & term[3])));
    uint32_t high = (~y & ((~z & term[4]) | (z & term[5]))) | (y & ((~z & term[6]) | (z & term[7])));
    return (~x & low) | (x & high);
  });
  return i + 1;
}

template <typename T>
const Instruction* selectHandler(const Instruction* i, Context& context) {
  const T* a = slot<T>(context, i->op[1]);
  const T* b = slot<T>(context, i->op[2]);
  uint32_t condition = predicate(context, i->op[3]);
  assign(activeLanes(i, context), slot<T>(context, i->op[0]),
         [=](uint32_t l) { return condition & kLaneBit[l] ? a[l] : b[l]; });
  return i + 1;
}

/// szext: sign- or zero-extends a from bit b on.
template <typename T, bool kWraps>
T extendFrom(T a, uint32_t b) {
  uint32_t width = kWraps ? b & 31 : clampTo32(b);
  if (width >= 32) return a;
  if (width == 0) return 0;
  uint32_t shift = 32 - width;
  return static_cast<T>(static_cast<T>(static_cast<uint32_t>(a) << shift) >> shift);
}

template <PredicateOp kOp>
const Instruction* predicateHandler(const Instruction* i, Context& context) {
  uint32_t a = predicate(context, i->op[1]);
  uint32_t value = a;
  if constexpr (kOp == PredicateOp::kAnd) value = a & predicate(context, i->op[2]);
  if constexpr (kOp == PredicateOp::kOr) value = a | predicate(context, i->op[2]);
  if constexpr (kOp == PredicateOp::kXor) value = a ^ predicate(context, i->op[2]);
  if constexpr (kOp == PredicateOp::kNot) value = ~a;
  assignPredicate(activeLanes(i, context), predicate(context, i->op[0]), value);
  return i + 1;
}

/// Operations that exist only for 32-bit words.
Handler wordOps(BitOp op, Type type) {
  using T = uint32_t;
  bool isSignedType = isSigned(type);
  switch (op) {
    case BitOp::kLop3: return &lop3Handler;
    case BitOp::kFns: return ternary<T>([](T a, T b, T c) { return findNthSet(a, b, static_cast<int32_t>(c)); });
    case BitOp::kShfLeftClamp: return ternary<T>([](T a, T b, T c) { return funnel(a, b, clampTo32(c), true); });
    case BitOp::kShfLeftWrap: return ternary<T>([](T a, T b, T c) { return funnel(a, b, c & 31, true); });
    case BitOp::kShfRightClamp: return ternary<T>([](T a, T b, T c) { return funnel(a, b, clampTo32(c), false); });
    case BitOp::kShfRightWrap: return ternary<T>([](T a, T b, T c) { return funnel(a, b, c & 31, false); });
    case BitOp::kPrmt: return ternary<T>([](T a, T b, T c) { return permute(a, b, c); });
    case BitOp::kPrmtF4e:
      return ternary<T>([](T a, T b, T c) { return permuteMode<0x3210, 0x4321, 0x5432, 0x6543>(a, b, c); });
    case BitOp::kPrmtB4e:
      return ternary<T>([](T a, T b, T c) { return permuteMode<0x5670, 0x6701, 0x7012, 0x0123>(a, b, c); });
    case BitOp::kPrmtRc8:
      return ternary<T>([](T a, T b, T c) { return permuteMode<0x0000, 0x1111, 0x2222, 0x3333>(a, b, c); });
    case BitOp::kPrmtEcl:
      return ternary<T>([](T a, T b, T c) { return permuteMode<0x3210, 0x3211, 0x3222, 0x3333>(a, b, c); });
    case BitOp::kPrmtEcr:
      return ternary<T>([](T a, T b, T c) { return permuteMode<0x0000, 0x1110, 0x2210, 0x3210>(a, b, c); });
    case BitOp::kPrmtRc16:
      return ternary<T>([](T a, T b, T c) { return permuteMode<0x1010, 0x3232, 0x1010, 0x3232>(a, b, c); });
    case BitOp::kBmskClamp:
      return binary<T>([](T a, T b) { return a > 31 ? 0u : static_cast<uint32_t>(lowMask(clampTo32(b)) << a); });
    case BitOp::kBmskWrap:
      return binary<T>([](T a, T b) { return static_cast<uint32_t>(lowMask(b & 31) << (a & 31)); });
    case BitOp::kSzextClamp:
      return isSignedType ? binary<int32_t, int32_t, T>([](int32_t a, T b) { return extendFrom<int32_t, false>(a, b); })
                          : binary<T>([](T a, T b) { return extendFrom<T, false>(a, b); });
    case BitOp::kSzextWrap:
      return isSignedType ? binary<int32_t, int32_t, T>([](int32_t a, T b) { return extendFrom<int32_t, true>(a, b); })
                          : binary<T>([](T a, T b) { return extendFrom<T, true>(a, b); });
    default: return nullptr;
  }
}

}  // namespace

Handler selectBit(BitOp op, Type type) {
  uint32_t bits = bitsOf(type);
  if (op == BitOp::kSelect) {
    return bits == 16 ? &selectHandler<uint16_t> : bits == 32 ? &selectHandler<uint32_t> : &selectHandler<uint64_t>;
  }
  if (op == BitOp::kBfi) return bits == 64 ? &insertHandler<uint64_t> : &insertHandler<uint32_t>;
  Type plain = isSigned(type) ? type : unsignedOf(bits);
  Handler handler = forInteger(plain, [=](auto tag) { return bitsOfType<typename decltype(tag)::type>(op); });
  if (handler || bits != 32) return handler;
  return wordOps(op, type);
}

Handler selectPredicate(PredicateOp op) {
  switch (op) {
    case PredicateOp::kMove: return &predicateHandler<PredicateOp::kMove>;
    case PredicateOp::kAnd: return &predicateHandler<PredicateOp::kAnd>;
    case PredicateOp::kOr: return &predicateHandler<PredicateOp::kOr>;
    case PredicateOp::kXor: return &predicateHandler<PredicateOp::kXor>;
    default: return &predicateHandler<PredicateOp::kNot>;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
