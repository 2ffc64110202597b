// SPDX-License-Identifier: Apache-2.0
// Branches, calls, ends; and the rest: special registers, addresses, packing.
#include "softgpu/ptx/call_site.h"
#include "softgpu/ptx/exec/locate.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

/// Jumps backwards to `target`: at this point a loop may be cancelled or yield to others.
const Instruction* goBack(const Instruction* target, Context& context) {
  if (--context.budget <= 0) [[unlikely]]
    return pauseWarp(target, context);
  return target;
}

template <bool kBackward>
const Instruction* branchHandler(const Instruction* i, Context& context) {
  uint32_t taken = activeLanes(i, context);
  if (taken == 0) return i + 1;
  if (taken != context.mask) [[unlikely]]
    return divergeBranch(i, context, taken);
  return kBackward ? goBack(i->target, context) : i->target;
}
const Instruction* jumpHandler(const Instruction* i, Context&) { return i->target; }
const Instruction* jumpBackwardHandler(const Instruction* i, Context& context) { return goBack(i->target, context); }

/// index. An index outside the table ends in a fault.
const Instruction* branchTableHandler(const Instruction* i, Context& context) {
  const BranchTable& table = *static_cast<const BranchTable*>(i->table);
  const uint32_t* index = slot<uint32_t>(context, i->op[0]);
  uint32_t first = lowestLane(context.mask);
  bool isUniform = true;
  for (uint32_t rest = context.mask; rest; rest &= rest - 1) {
    uint32_t l = lowestLane(rest);
    if (index[l] >= table.count) return raiseFault(i, context, FaultKind::kIllegalInstruction, {l, index[l], 0, false});
    isUniform &= index[l] == index[first];
  }
  if (isUniform) return goBack(table.targets[index[first]], context);
  return divergeTable(i, context, index);
}

const Instruction* joinHandler(const Instruction* i, Context& context) { return joinLanes(i, context); }
const Instruction* callHandler(const Instruction* i, Context& context) {
  return callFunction(i, context, static_cast<uint32_t>(i->immediate));
}
const Instruction* callIndirectHandler(const Instruction* i, Context& context) {
  return callIndirect(i, context, slot<uint64_t>(context, i->op[0]));
}
const Instruction* callBuiltinHandler(const Instruction* i, Context& context) { return callBuiltin(i, context); }
const Instruction* returnHandler(const Instruction* i, Context& context) { return returnLanes(i, context); }
const Instruction* exitHandler(const Instruction* i, Context& context) {
  uint32_t lanes = activeLanes(i, context);
  return lanes ? exitLanes(i, context, lanes) : i + 1;
}
const Instruction* trapHandler(const Instruction* i, Context& context) {
  uint32_t lanes = activeLanes(i, context);
  if (lanes == 0) return i + 1;
  return raiseFault(i, context, FaultKind::kTrap, {lowestLane(lanes), 0, 0, false});
}
const Instruction* pauseHandler(const Instruction* i, Context& context) { return pauseWarp(i + 1, context); }
const Instruction* nothingHandler(const Instruction* i, Context&) { return i + 1; }
const Instruction* fenceHandler(const Instruction* i, Context&) {
  fenceMemory();
  return i + 1;
}

template <typename T>
const Instruction* specialHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  T* d = slot<T>(context, i->op[0]);
  Special which = static_cast<Special>(i->immediate);
  if (which <= Special::kTidZ) {
    const uint32_t* index = context.threadIndex[static_cast<uint32_t>(which)];
    assign(mask, d, [=](uint32_t l) { return static_cast<T>(index[l]); });
  } else if (which >= Special::kLaneId && which <= Special::kLanemaskGt && which != Special::kWarpId) {
    assignSparse(mask, d,
                 [&](uint32_t l) { return static_cast<T>(specialRegister(context, static_cast<uint32_t>(which), l)); });
  } else {
    T value = static_cast<T>(specialRegister(context, static_cast<uint32_t>(which), 0));
    assign(mask, d, [=](uint32_t) { return value; });
  }
  return i + 1;
}

/// d = a place of the current frame in local memory.
template <typename T>
const Instruction* localAddressHandler(const Instruction* i, Context& context) {
  T value = static_cast<T>(static_cast<int64_t>(context.localBase) + i->immediate);
  assign(activeLanes(i, context), slot<T>(context, i->op[0]), [=](uint32_t) { return value; });
  return i + 1;
}

/// d, size. Allocates memory from the end of each lane's local memory. Instruction::immediate: its alignment.
template <typename T>
const Instruction* allocateHandler(const Instruction* i, Context& context) {
  const uint32_t mask = activeLanes(i, context);
  const T* size = slot<T>(context, i->op[1]);
  T* d = slot<T>(context, i->op[0]);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const uint32_t l = lowestLane(rest);
    const uint32_t end = context.stackEnd[l];
    const uint32_t begin =
        size[l] <= end ? (end - static_cast<uint32_t>(size[l])) & ~static_cast<uint32_t>(i->immediate - 1) : 0;
    if (size[l] > end || begin < frameEnd(context))
      return raiseFault(i, context, FaultKind::kStackOverflow, {l, 0, 0, false});
    context.stackEnd[l] = begin;
    d[l] = begin;
  }
  return i + 1;
}
template <typename T>
const Instruction* stackSaveHandler(const Instruction* i, Context& context) {
  const uint32_t* end = context.stackEnd;
  assign(activeLanes(i, context), slot<T>(context, i->op[0]), [=](uint32_t l) { return T{end[l]}; });
  return i + 1;
}
/// Frees memory allocated since `a` was saved; any other value is not a position in its stack.
template <typename T>
const Instruction* stackRestoreHandler(const Instruction* i, Context& context) {
  const T* a = slot<T>(context, i->op[0]);
  for (uint32_t rest = activeLanes(i, context); rest; rest &= rest - 1) {
    const uint32_t l = lowestLane(rest);
    if (a[l] > context.localBytes || a[l] < context.stackEnd[l])
      return raiseFault(i, context, FaultKind::kStackOverflow, {l, 0, 0, false});
    context.stackEnd[l] = static_cast<uint32_t>(a[l]);
  }
  return i + 1;
}

/// p, address. Instruction::immediate: the Space.
const Instruction* isSpaceHandler(const Instruction* i, Context& context) {
  const uint64_t* address = slot<uint64_t>(context, i->op[1]);
  uint32_t value = 0;
  uint32_t mask = activeLanes(i, context);
  forLanes(mask, [&](uint32_t l) {
    if (isInSpace(context, static_cast<Space>(i->immediate), address[l])) value |= kLaneBit[l];
  });
  assignPredicate(mask, predicate(context, i->op[0]), value);
  return i + 1;
}

/// d, a: adds the window in Instruction::immediate, or subtracts it.
template <bool kToGeneric>
const Instruction* windowHandler(const Instruction* i, Context& context) {
  const uint64_t* a = slot<uint64_t>(context, i->op[1]);
  uint64_t window = static_cast<uint64_t>(i->immediate);
  assign(activeLanes(i, context), slot<uint64_t>(context, i->op[0]),
         [=](uint32_t l) { return kToGeneric ? a[l] + window : a[l] - window; });
  return i + 1;
}

/// A kernel's parameter, the same for all lanes; its existence was checked at the launch.
const Instruction* loadParameterHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  if (mask == 0) return i + 1;
  Lanes lanes;
  lanes.shape = Lanes::Shape::kUniform;
  lanes.mask = mask;
  lanes.base = const_cast<std::byte*>(context.parameters) + i->immediate;
  i->move(i, context, lanes);
  return i + 1;
}

template <typename Whole, typename Part, typename Stored, uint32_t kCount>
const Instruction* unpackHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  alignas(64) Whole a[32];
  std::memcpy(a, slot<Whole>(context, i->op[kCount]), sizeof(a));
  for (uint32_t k = 0; k < kCount; ++k) {
    if (i->op[k] == kNoOperand) continue;
    uint32_t shift = k * static_cast<uint32_t>(sizeof(Part)) * 8;
    assign(mask, slot<Stored>(context, i->op[k]),
           [&](uint32_t l) { return static_cast<Stored>(static_cast<Part>(a[l] >> shift)); });
  }
  return i + 1;
}
template <typename Whole, typename Part, typename Stored, uint32_t kCount>
const Instruction* packHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  alignas(64) Whole whole[32] = {};
  for (uint32_t k = 0; k < kCount; ++k) {
    const Stored* a = slot<Stored>(context, i->op[k + 1]);
    uint32_t shift = k * static_cast<uint32_t>(sizeof(Part)) * 8;
    MILLPOND_LANES (l)
      whole[l] =
          static_cast<Whole>(whole[l] | static_cast<Whole>(static_cast<Whole>(static_cast<Part>(a[l])) << shift));
  }
  assign(mask, slot<Whole>(context, i->op[0]), [&](uint32_t l) { return whole[l]; });
  return i + 1;
}

}  // namespace

Handler selectControl(ControlOp op) {
  switch (op) {
    case ControlOp::kBranch: return &branchHandler<false>;
    case ControlOp::kBranchBackward: return &branchHandler<true>;
    case ControlOp::kJump: return &jumpHandler;
    case ControlOp::kJumpBackward: return &jumpBackwardHandler;
    case ControlOp::kBranchTable: return &branchTableHandler;
    case ControlOp::kJoin: return &joinHandler;
    case ControlOp::kCall: return &callHandler;
    case ControlOp::kCallIndirect: return &callIndirectHandler;
    case ControlOp::kCallBuiltin: return &callBuiltinHandler;
    case ControlOp::kReturn: return &returnHandler;
    case ControlOp::kExit: return &exitHandler;
    case ControlOp::kTrap: return &trapHandler;
    case ControlOp::kPause: return &pauseHandler;
    case ControlOp::kFence: return &fenceHandler;
    case ControlOp::kNothing: return &nothingHandler;
    case ControlOp::kSpecial32: return &specialHandler<uint32_t>;
    case ControlOp::kSpecial64: return &specialHandler<uint64_t>;
    case ControlOp::kLocalAddress32: return &localAddressHandler<uint32_t>;
    case ControlOp::kLocalAddress64: return &localAddressHandler<uint64_t>;
    case ControlOp::kAllocate32: return &allocateHandler<uint32_t>;
    case ControlOp::kAllocate64: return &allocateHandler<uint64_t>;
    case ControlOp::kStackSave32: return &stackSaveHandler<uint32_t>;
    case ControlOp::kStackSave64: return &stackSaveHandler<uint64_t>;
    case ControlOp::kStackRestore32: return &stackRestoreHandler<uint32_t>;
    case ControlOp::kStackRestore64: return &stackRestoreHandler<uint64_t>;
    case ControlOp::kIsSpace: return &isSpaceHandler;
    case ControlOp::kToGeneric: return &windowHandler<true>;
    case ControlOp::kFromGeneric: return &windowHandler<false>;
    case ControlOp::kLoadParameter: return &loadParameterHandler;
    case ControlOp::kWarpBarrier:
    case ControlOp::kActiveMask:
    case ControlOp::kElect: return selectCollective(op);
  }
  return nullptr;
}

Handler selectUnpack(uint32_t bits, uint32_t count) {
  if (bits == 64 && count == 2) return &unpackHandler<uint64_t, uint32_t, uint32_t, 2>;
  if (bits == 64 && count == 4) return &unpackHandler<uint64_t, uint16_t, uint16_t, 4>;
  if (bits == 32 && count == 2) return &unpackHandler<uint32_t, uint16_t, uint16_t, 2>;
  if (bits == 32 && count == 4) return &unpackHandler<uint32_t, uint8_t, uint16_t, 4>;
  if (bits == 16 && count == 2) return &unpackHandler<uint16_t, uint8_t, uint16_t, 2>;
  return nullptr;
}

Handler selectPack(uint32_t bits, uint32_t count) {
  if (bits == 64 && count == 2) return &packHandler<uint64_t, uint32_t, uint32_t, 2>;
  if (bits == 64 && count == 4) return &packHandler<uint64_t, uint16_t, uint16_t, 4>;
  if (bits == 32 && count == 2) return &packHandler<uint32_t, uint16_t, uint16_t, 2>;
  if (bits == 32 && count == 4) return &packHandler<uint32_t, uint8_t, uint16_t, 4>;
  if (bits == 16 && count == 2) return &packHandler<uint16_t, uint8_t, uint16_t, 2>;
  return nullptr;
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
