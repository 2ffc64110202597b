// SPDX-License-Identifier: Apache-2.0
// Instructions in which lanes of a warp, or warps of a block, take part together: shuffle, vote, match,
// reduce, barriers. They are never guarded: the decoder branches around them instead.
#include <type_traits>

#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

constexpr uint32_t kMembersOperand = 5;

/// The participating lanes, and their inputs.
template <typename T>
struct Gathered {
  bool isReady;
  const Instruction* next;  // the instruction at which to continue if not
  uint32_t present;         // lanes whose values have arrived
  T value[32];
};

/// Makes sure that all members of all active lanes have arrived. `bring(lane)` is a lane's value.
template <typename T, typename F>
void gather(const Instruction* i, Context& context, F bring, Gathered<T>& out) {
  if (context.exchange) {
    MILLPOND_LANES (l) out.value[l] = static_cast<T>(context.exchange->value[l]);
    out.present = context.exchangeMask;
    out.isReady = true;
    context.exchange = nullptr;
    return;
  }
  const uint32_t* members = slot<uint32_t>(context, i->op[kMembersOperand]);
  uint32_t mask = context.mask;
  uint32_t alive = aliveLanes(context);
  uint32_t missing = 0;
  forLanes(mask, [&](uint32_t l) { missing |= members[l] & alive & ~mask; });
  if (missing == 0) [[likely]] {
    MILLPOND_LANES (l) out.value[l] = bring(l);
    out.present = mask;
    out.isReady = true;
    return;
  }
  // The lanes that name the same members as the first one that must wait.
  uint32_t group = 0;
  uint32_t wanted = 0;
  forLanes(mask, [&](uint32_t l) {
    if (group == 0 && (members[l] & alive & ~mask)) wanted = members[l];
    if (wanted && members[l] == wanted) group |= kLaneBit[l];
  });
  uint64_t values[32];
  MILLPOND_LANES (l) values[l] = static_cast<uint64_t>(bring(l));
  out.isReady = false;
  out.next = waitForLanes(i, context, group, wanted, values);
}

/// d | p, a, b, c, members.
template <ShuffleOp kOp>
const Instruction* shuffleHandler(const Instruction* i, Context& context) {
  const uint32_t* a = slot<uint32_t>(context, i->op[2]);
  Gathered<uint32_t> all;
  gather(
      i, context, [=](uint32_t l) { return a[l]; }, all);
  if (!all.isReady) return all.next;
  const uint32_t* b = slot<uint32_t>(context, i->op[3]);
  const uint32_t* c = slot<uint32_t>(context, i->op[4]);
  uint32_t* d = slot<uint32_t>(context, i->op[0]);
  uint32_t inRange = 0;
  uint32_t result[32];
  for (uint32_t l = 0; l < 32; ++l) {
    uint32_t offset = b[l] & 31;
    uint32_t clamp = c[l] & 31;
    uint32_t segment = c[l] >> 8 & 31;
    uint32_t last = (l & segment) | (clamp & ~segment);
    uint32_t from;
    bool isInside;
    if constexpr (kOp == ShuffleOp::kUp) {
      from = l - offset;
      isInside = static_cast<int32_t>(from) >= static_cast<int32_t>(last);
    } else if constexpr (kOp == ShuffleOp::kDown) {
      from = l + offset;
      isInside = from <= last;
    } else if constexpr (kOp == ShuffleOp::kButterfly) {
      from = l ^ offset;
      isInside = from <= last;
    } else {
      from = (l & segment) | (offset & ~segment);
      isInside = from <= last;
    }
    if (isInside) inRange |= kLaneBit[l];
    // A card answers 0 for a lane that takes no part.
    result[l] = !isInside ? all.value[l] : all.present & kLaneBit[from & 31] ? all.value[from & 31] : 0;
  }
  assign(context.mask, d, [&](uint32_t l) { return result[l]; });
  if (i->op[1] != kNoOperand) assignPredicate(context.mask, predicate(context, i->op[1]), inRange);
  return i + 1;
}

/// d, a, members.
template <VoteOp kOp>
const Instruction* voteHandler(const Instruction* i, Context& context) {
  uint32_t a = predicate(context, i->op[1]);
  Gathered<uint32_t> all;
  gather(
      i, context, [=](uint32_t l) { return a >> l & 1; }, all);
  if (!all.isReady) return all.next;
  uint32_t votes = 0;
  for (uint32_t l = 0; l < 32; ++l) votes |= all.value[l] << l;
  const uint32_t* members = slot<uint32_t>(context, i->op[kMembersOperand]);
  if constexpr (kOp == VoteOp::kBallot) {
    assign(context.mask, slot<uint32_t>(context, i->op[0]),
           [=](uint32_t l) { return votes & members[l] & all.present; });
  } else {
    uint32_t result = lanesWhere([=](uint32_t l) {
      uint32_t who = members[l] & all.present;
      bool isAll = (votes & who) == who;
      bool isNone = (votes & who) == 0;
      return kOp == VoteOp::kAll ? isAll : kOp == VoteOp::kAny ? !isNone : isAll || isNone;
    });
    assignPredicate(context.mask, predicate(context, i->op[0]), result);
  }
  return i + 1;
}

/// d, a, members: the combined values of all members.
template <ReduceOp kOp, typename T>
const Instruction* reduceHandler(const Instruction* i, Context& context) {
  const T* a = slot<T>(context, i->op[1]);
  Gathered<T> all;
  gather(
      i, context, [=](uint32_t l) { return a[l]; }, all);
  if (!all.isReady) return all.next;
  const uint32_t* members = slot<uint32_t>(context, i->op[kMembersOperand]);
  assignSparse(context.mask, slot<T>(context, i->op[0]), [&](uint32_t l) {
    uint32_t who = members[l] & all.present;
    uint32_t first = lowestLane(who);
    uint32_t sum = static_cast<uint32_t>(all.value[first]);
    forLanes(who & (who - 1), [&](uint32_t m) {
      T value = all.value[m];
      T so = static_cast<T>(sum);
      if constexpr (kOp == ReduceOp::kAdd) sum += static_cast<uint32_t>(value);
      if constexpr (kOp == ReduceOp::kMin) sum = static_cast<uint32_t>(value < so ? value : so);
      if constexpr (kOp == ReduceOp::kMax) sum = static_cast<uint32_t>(so < value ? value : so);
      if constexpr (kOp == ReduceOp::kAnd) sum &= static_cast<uint32_t>(value);
      if constexpr (kOp == ReduceOp::kOr) sum |= static_cast<uint32_t>(value);
      if constexpr (kOp == ReduceOp::kXor) sum ^= static_cast<uint32_t>(value);
    });
    return static_cast<T>(sum);
  });
  return i + 1;
}

/// d | p, a, members. any: the members with this lane's value; all: all of them, if all values are equal.
template <typename T, bool kAll>
const Instruction* matchHandler(const Instruction* i, Context& context) {
  const T* a = slot<T>(context, i->op[2]);
  Gathered<T> all;
  gather(
      i, context, [=](uint32_t l) { return a[l]; }, all);
  if (!all.isReady) return all.next;
  const uint32_t* members = slot<uint32_t>(context, i->op[kMembersOperand]);
  uint32_t* d = slot<uint32_t>(context, i->op[0]);
  uint32_t agreed = 0;
  forLanes(context.mask, [&](uint32_t l) {
    uint32_t who = members[l] & all.present;
    uint32_t same = lanesWhere([&](uint32_t m) { return all.value[m] == all.value[l]; }) & who;
    if (same == who) agreed |= kLaneBit[l];
    d[l] = kAll ? (same == who ? who : 0) : same;
  });
  if (i->op[1] != kNoOperand) assignPredicate(context.mask, predicate(context, i->op[1]), agreed);
  return i + 1;
}

const Instruction* warpBarrierHandler(const Instruction* i, Context& context) {
  Gathered<uint32_t> all;
  gather(
      i, context, [](uint32_t) { return uint32_t{0}; }, all);
  return all.isReady ? i + 1 : all.next;
}

/// d | p, -, members: the lowest member is elected.
const Instruction* electHandler(const Instruction* i, Context& context) {
  Gathered<uint32_t> all;
  gather(
      i, context, [](uint32_t) { return uint32_t{0}; }, all);
  if (!all.isReady) return all.next;
  const uint32_t* members = slot<uint32_t>(context, i->op[kMembersOperand]);
  uint32_t leads = 0;
  uint32_t leader[32] = {};
  forLanes(context.mask, [&](uint32_t l) {
    uint32_t who = members[l] & all.present;
    leader[l] = who ? lowestLane(who) : l;
    if (leader[l] == l) leads |= kLaneBit[l];
  });
  if (i->op[0] != kNoOperand)
    assign(context.mask, slot<uint32_t>(context, i->op[0]), [&](uint32_t l) { return leader[l]; });
  assignPredicate(context.mask, predicate(context, i->op[1]), leads);
  return i + 1;
}

const Instruction* activeMaskHandler(const Instruction* i, Context& context) {
  uint32_t active = activeLanes(i, context);
  assign(active, slot<uint32_t>(context, i->op[0]), [=](uint32_t) { return active; });
  return i + 1;
}

/// The value of an operand that must be the same in all active lanes; false after a fault.
bool uniformOperand(const Instruction* i, Context& context, uint32_t operand, uint32_t& value) {
  const uint32_t* all = slot<uint32_t>(context, operand);
  uint32_t first = lowestLane(context.mask);
  value = all[first];
  bool isUniform = true;
  forLanes(context.mask, [&](uint32_t l) { isUniform &= all[l] == all[first]; });
  if (!isUniform) raiseFault(i, context, FaultKind::kIllegalInstruction, {first, 0, 0, false});
  return isUniform;
}

/// d, barrier, threads, predicate.
template <BarrierKind kKind>
const Instruction* barrierHandler(const Instruction* i, Context& context) {
  constexpr bool kReduces = kKind != BarrierKind::kSync && kKind != BarrierKind::kArrive;
  if (kReduces && context.exchange) {
    uint32_t result = static_cast<uint32_t>(context.exchange->value[0]);
    context.exchange = nullptr;
    if constexpr (kKind == BarrierKind::kReduceCount) {
      assign(context.mask, slot<uint32_t>(context, i->op[0]), [=](uint32_t) { return result; });
    } else {
      assignPredicate(context.mask, predicate(context, i->op[0]), result ? kAllLanes : 0);
    }
    return i + 1;
  }
  uint32_t id = 0;
  uint32_t threads = 0;
  if (!uniformOperand(i, context, i->op[1], id)) return nullptr;
  if (i->op[2] != kNoOperand) {
    if (!uniformOperand(i, context, i->op[2], threads)) return nullptr;
    if (threads == 0 || threads % 32 != 0) {
      return raiseFault(i, context, FaultKind::kIllegalInstruction, {lowestLane(context.mask), 0, 0, false});
    }
  }
  return reachBarrier(i, context, kKind, id, threads, kReduces ? predicate(context, i->op[3]) : 0);
}

template <ReduceOp kOp>
Handler reduceOf(Type type) {
  return type == Type::kS32 ? &reduceHandler<kOp, int32_t> : &reduceHandler<kOp, uint32_t>;
}

}  // namespace

Handler selectShuffle(ShuffleOp op) {
  switch (op) {
    case ShuffleOp::kUp: return &shuffleHandler<ShuffleOp::kUp>;
    case ShuffleOp::kDown: return &shuffleHandler<ShuffleOp::kDown>;
    case ShuffleOp::kButterfly: return &shuffleHandler<ShuffleOp::kButterfly>;
    default: return &shuffleHandler<ShuffleOp::kIndex>;
  }
}

Handler selectVote(VoteOp op) {
  switch (op) {
    case VoteOp::kAll: return &voteHandler<VoteOp::kAll>;
    case VoteOp::kAny: return &voteHandler<VoteOp::kAny>;
    case VoteOp::kUniform: return &voteHandler<VoteOp::kUniform>;
    default: return &voteHandler<VoteOp::kBallot>;
  }
}

Handler selectReduce(ReduceOp op, Type type) {
  if (bitsOf(type) != 32 || isFloat(type)) return nullptr;
  switch (op) {
    case ReduceOp::kAdd: return reduceOf<ReduceOp::kAdd>(type);
    case ReduceOp::kMin: return reduceOf<ReduceOp::kMin>(type);
    case ReduceOp::kMax: return reduceOf<ReduceOp::kMax>(type);
    case ReduceOp::kAnd: return reduceOf<ReduceOp::kAnd>(type);
    case ReduceOp::kOr: return reduceOf<ReduceOp::kOr>(type);
    default: return reduceOf<ReduceOp::kXor>(type);
  }
}

Handler selectMatch(bool isAll, uint32_t bits) {
  if (bits == 32) return isAll ? &matchHandler<uint32_t, true> : &matchHandler<uint32_t, false>;
  return isAll ? &matchHandler<uint64_t, true> : &matchHandler<uint64_t, false>;
}

Handler selectBarrier(BarrierKind kind) {
  switch (kind) {
    case BarrierKind::kSync: return &barrierHandler<BarrierKind::kSync>;
    case BarrierKind::kArrive: return &barrierHandler<BarrierKind::kArrive>;
    case BarrierKind::kReduceAnd: return &barrierHandler<BarrierKind::kReduceAnd>;
    case BarrierKind::kReduceOr: return &barrierHandler<BarrierKind::kReduceOr>;
    default: return &barrierHandler<BarrierKind::kReduceCount>;
  }
}

Handler selectCollective(ControlOp op) {
  switch (op) {
    case ControlOp::kWarpBarrier: return &warpBarrierHandler;
    case ControlOp::kElect: return &electHandler;
    default: return &activeMaskHandler;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
