// SPDX-License-Identifier: Apache-2.0
// Comparisons: setp and slct. The decoder makes set from setp and selections.
#include "softgpu/ptx/exec/floats.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

/// How values of a register are compared: the content of T, and its interpretation.
template <typename T, bool kFlush = false>
struct Plain {
  using Stored = T;
  static T value(T x) { return operandOf<kFlush>(x); }
};
template <typename Format>
struct Sixteen {
  using Stored = uint16_t;
  static float value(uint16_t x) { return decode<Format>(x); }
};

template <CompareOp kOp, typename V>
bool holds(V a, V b) {
  switch (kOp) {
    case CompareOp::kEq: return a == b;
    case CompareOp::kLt: return a < b;
    case CompareOp::kLe: return a <= b;
    case CompareOp::kGt: return a > b;
    case CompareOp::kGe: return a >= b;
    case CompareOp::kNeu: return a != b;
    // For ordered operands; for integers the same as !=.
    case CompareOp::kNe: return a < b || a > b;
    case CompareOp::kEqu: return !(a < b || a > b);
    case CompareOp::kLtu: return !(a >= b);
    case CompareOp::kLeu: return !(a > b);
    case CompareOp::kGtu: return !(a <= b);
    case CompareOp::kGeu: return !(a < b);
    case CompareOp::kNum: return a == a && b == b;
    default: return a != a || b != b;
  }
}

uint32_t combine(uint32_t compared, const Instruction* i, const Context& context, uint32_t operand) {
  switch (static_cast<Combine>(i->immediate & 3)) {
    case Combine::kAnd: return compared & predicate(context, i->op[operand]);
    case Combine::kOr: return compared | predicate(context, i->op[operand]);
    case Combine::kXor: return compared ^ predicate(context, i->op[operand]);
    default: return compared;
  }
}

template <typename How, CompareOp kOp>
uint32_t comparedLanes(const Instruction* i, const Context& context, uint32_t first) {
  using Stored = typename How::Stored;
  const Stored* a = slot<Stored>(context, i->op[first]);
  const Stored* b = slot<Stored>(context, i->op[first + 1]);
  return lanesWhere([=](uint32_t l) { return holds<kOp>(How::value(a[l]), How::value(b[l])); });
}

/// setp: p | q, a, b, c. Instruction::immediate: Combine.
template <typename How, CompareOp kOp>
const Instruction* setpHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  uint32_t compared = comparedLanes<How, kOp>(i, context, 2);
  uint32_t p = combine(compared, i, context, 4);
  uint32_t q = i->op[1] == kNoOperand ? 0 : combine(~compared, i, context, 4);
  assignPredicate(mask, predicate(context, i->op[0]), p);
  if (i->op[1] != kNoOperand) assignPredicate(mask, predicate(context, i->op[1]), q);
  return i + 1;
}

/// The comparison of the low (0) or high (16) halves of pairs.
template <typename Format, CompareOp kOp>
uint32_t comparedHalves(const Instruction* i, const Context& context, uint32_t first, uint32_t shift) {
  const uint32_t* a = slot<uint32_t>(context, i->op[first]);
  const uint32_t* b = slot<uint32_t>(context, i->op[first + 1]);
  return lanesWhere([=](uint32_t l) {
    return holds<kOp>(decode<Format>(static_cast<uint16_t>(a[l] >> shift)),
                      decode<Format>(static_cast<uint16_t>(b[l] >> shift)));
  });
}
/// setp of pairs: p for the low halves, q for the high ones.
template <typename Format, CompareOp kOp>
const Instruction* setpPairHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  uint32_t low = combine(comparedHalves<Format, kOp>(i, context, 2, 0), i, context, 4);
  uint32_t high = combine(comparedHalves<Format, kOp>(i, context, 2, 16), i, context, 4);
  assignPredicate(mask, predicate(context, i->op[0]), low);
  if (i->op[1] != kNoOperand) assignPredicate(mask, predicate(context, i->op[1]), high);
  return i + 1;
}

template <CompareOp kOp>
struct OpTag {
  static constexpr CompareOp value = kOp;
};
template <typename F>
Handler forOp(CompareOp op, bool isOrderedOnly, F choose) {
  switch (op) {
    case CompareOp::kEq: return choose(OpTag<CompareOp::kEq>{});
    case CompareOp::kNe: return choose(OpTag<CompareOp::kNe>{});
    case CompareOp::kLt: return choose(OpTag<CompareOp::kLt>{});
    case CompareOp::kLe: return choose(OpTag<CompareOp::kLe>{});
    case CompareOp::kGt: return choose(OpTag<CompareOp::kGt>{});
    case CompareOp::kGe: return choose(OpTag<CompareOp::kGe>{});
    default: break;
  }
  if (isOrderedOnly) return nullptr;
  switch (op) {
    case CompareOp::kEqu: return choose(OpTag<CompareOp::kEqu>{});
    case CompareOp::kNeu: return choose(OpTag<CompareOp::kNeu>{});
    case CompareOp::kLtu: return choose(OpTag<CompareOp::kLtu>{});
    case CompareOp::kLeu: return choose(OpTag<CompareOp::kLeu>{});
    case CompareOp::kGtu: return choose(OpTag<CompareOp::kGtu>{});
    case CompareOp::kGeu: return choose(OpTag<CompareOp::kGeu>{});
    case CompareOp::kNum: return choose(OpTag<CompareOp::kNum>{});
    default: return choose(OpTag<CompareOp::kNan>{});
  }
}

template <typename How>
struct HowTag {
  using type = How;
};
/// choose(HowTag) with the way in which values of a type are compared; null for types without comparison.
template <typename F>
Handler forType(Type type, bool flush, F choose) {
  switch (type) {
    case Type::kF32: return flush ? choose(HowTag<Plain<float, true>>{}) : choose(HowTag<Plain<float>>{});
    case Type::kF64: return choose(HowTag<Plain<double>>{});
    case Type::kF16: return choose(HowTag<Sixteen<Half>>{});
    case Type::kBf16: return choose(HowTag<Sixteen<Bfloat>>{});
    default: break;
  }
  Type plain = isBits(type) ? unsignedOf(bitsOf(type)) : type;
  return forInteger(plain, [=](auto tag) { return choose(HowTag<Plain<typename decltype(tag)::type>>{}); });
}

template <typename D, bool kSingleCondition>
const Instruction* slctHandler(const Instruction* i, Context& context) {
  const D* a = slot<D>(context, i->op[1]);
  const D* b = slot<D>(context, i->op[2]);
  uint32_t first;
  if constexpr (kSingleCondition) {
    const float* c = slot<float>(context, i->op[3]);
    bool flush = i->immediate;
    first = lanesWhere([=](uint32_t l) { return (flush ? flushed(c[l]) : c[l]) >= 0; });
  } else {
    const int32_t* c = slot<int32_t>(context, i->op[3]);
    first = lanesWhere([=](uint32_t l) { return c[l] >= 0; });
  }
  assign(activeLanes(i, context), slot<D>(context, i->op[0]),
         [=](uint32_t l) { return first & kLaneBit[l] ? a[l] : b[l]; });
  return i + 1;
}

}  // namespace

Handler selectCompare(CompareOp op, Type type, bool flush) {
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    return forOp(op, false, [=](auto tag) -> Handler {
      constexpr CompareOp kOp = decltype(tag)::value;
      return type == Type::kF16x2 ? &setpPairHandler<Half, kOp> : &setpPairHandler<Bfloat, kOp>;
    });
  }
  return forType(type, flush, [=](auto how) {
    using How = typename decltype(how)::type;
    return forOp(op, !isFloat(type), [](auto tag) -> Handler { return &setpHandler<How, decltype(tag)::value>; });
  });
}

Handler selectBySign(Type data, Type condition, bool) {
  bool isSingle = condition == Type::kF32;
  switch (bitsOf(data)) {
    case 16: return isSingle ? &slctHandler<uint16_t, true> : &slctHandler<uint16_t, false>;
    case 32: return isSingle ? &slctHandler<uint32_t, true> : &slctHandler<uint32_t, false>;
    case 64: return isSingle ? &slctHandler<uint64_t, true> : &slctHandler<uint64_t, false>;
    default: return nullptr;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
