// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies, which are made when they are asked for, and the barriers in shared memory that count their ends. One thread
// of the host at a time runs a block: what it does to its shared memory needs no atomics.
#include "softgpu/ptx/exec/locate.h"
#include "softgpu/ptx/operations.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

std::byte* laneAddress(const Lanes& lanes, uint32_t lane, size_t bytes) {
  switch (lanes.shape) {
    case Lanes::Shape::kUniform: return lanes.base;
    case Lanes::Shape::kContiguous: return lanes.base + lane * bytes;
    default: return lanes.lane[lane];
  }
}

/// Copies `piece` bytes at the offset `at` of these lanes' copies, or writes zeros beyond the bytes that are read.
/// False after a fault.
bool copyPiece(const Instruction* i, Context& context, uint32_t lanes, bool isRead, uint32_t at, uint32_t piece) {
  if (lanes == 0) return true;
  const CopyForm form = CopyForm::unpack(i->immediate);
  Lanes from;
  if (isRead) {
    Instruction read = *i;
    read.access = {static_cast<uint8_t>(piece), 1, 0};
    read.immediate = at;
    if (!selectLocator(form.from, form.isFromWide ? 64 : 32)(&read, context, lanes, false, from)) return false;
  }
  Instruction written = *i;
  written.access = {static_cast<uint8_t>(piece), 1, 0};
  written.immediate = at;
  written.op[kAddressOperand] = i->op[kCopyTarget];
  Lanes to;
  if (!selectLocator(form.to, form.isToWide ? 64 : 32)(&written, context, lanes, true, to)) return false;
  forLanes(lanes, [&](uint32_t l) {
    if (isRead)
      std::memcpy(laneAddress(to, l, piece), laneAddress(from, l, piece), piece);
    else
      std::memset(laneAddress(to, l, piece), 0, piece);
  });
  return true;
}

/// bytes to read, bytes to write; -, -, from, to. Bytes written beyond those that are read become zero.
const Instruction* copyHandler(const Instruction* i, Context& context) {
  const uint32_t active = activeLanes(i, context);
  const uint32_t* reads = slot<uint32_t>(context, i->op[0]);
  const uint32_t* writes = slot<uint32_t>(context, i->op[1]);
  const uint32_t piece = i->access.bytes;
  uint32_t most = 0;
  forLanes(active, [&](uint32_t l) { most = writes[l] > most ? writes[l] : most; });
  for (uint32_t at = 0; at < most; at += piece) {
    uint32_t whole = 0;
    uint32_t empty = 0;
    uint32_t partial = 0;
    forLanes(active, [&](uint32_t l) {
      if (writes[l] <= at) return;
      (reads[l] >= at + piece ? whole : reads[l] <= at ? empty : partial) |= kLaneBit[l];
    });
    if (!copyPiece(i, context, whole, true, at, piece) || !copyPiece(i, context, empty, false, at, piece))
      return nullptr;
    bool isGood = true;
    forLanes(partial, [&](uint32_t l) {
      for (uint32_t byte = at; byte < at + piece && isGood; ++byte)
        isGood = copyPiece(i, context, kLaneBit[l], byte < reads[l], byte, 1);
    });
    if (!isGood) return nullptr;
  }
  return i + 1;
}

/// A barrier in memory: the arrivals still expected in this phase, those expected in each phase, the bytes still to be
/// copied in this one, and the parity of the phase in the highest bit. Programs do not inspect it.
struct MemoryBarrier {
  static constexpr uint32_t kCountBits = 20;
  static constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;
  static constexpr uint64_t kPhase = uint64_t{1} << 63;

  uint32_t pending;
  uint32_t expected;
  uint32_t bytes;  // modulo 2 to the 20th: copies may end before they are expected
  bool phase;

  static MemoryBarrier unpack(uint64_t word) {
    return {static_cast<uint32_t>(word & kCountMask), static_cast<uint32_t>(word >> kCountBits & kCountMask),
            static_cast<uint32_t>(word >> 2 * kCountBits & kCountMask), (word & kPhase) != 0};
  }
  uint64_t pack() const {
    return (pending & kCountMask) | (expected & kCountMask) << kCountBits | (bytes & kCountMask) << 2 * kCountBits |
           (phase ? kPhase : 0);
  }
  void endPhaseIfDone() {
    if (pending != 0 || (bytes & kCountMask) != 0) return;
    phase = !phase;
    pending = expected;
  }
};

/// d, count or state or parity, bytes, -, address.
template <MemoryBarrierOp kOp>
const Instruction* barrierHandler(const Instruction* i, Context& context) {
  const uint32_t active = activeLanes(i, context);
  if (active == 0) return i + 1;
  constexpr bool kTests = kOp == MemoryBarrierOp::kTestState || kOp == MemoryBarrierOp::kTestParity;
  Lanes lanes;
  if (!i->locate(i, context, active, !kTests, lanes)) return nullptr;
  if (kTests) noteWait(context);
  const uint32_t* argument = i->op[1] == kNoOperand ? nullptr : slot<uint32_t>(context, i->op[1]);
  const uint32_t* bytes = i->op[2] == kNoOperand ? nullptr : slot<uint32_t>(context, i->op[2]);
  bool isGood = true;
  uint32_t bad = 0;
  uint32_t ended = 0;
  forLanes(active, [&](uint32_t l) {
    std::byte* const at = laneAddress(lanes, l, sizeof(uint64_t));
    uint64_t before;
    std::memcpy(&before, at, sizeof(before));
    MemoryBarrier barrier = MemoryBarrier::unpack(before);
    if constexpr (kOp == MemoryBarrierOp::kTestState) {
      const uint64_t state = slot<uint64_t>(context, i->op[1])[l];
      if (barrier.phase != MemoryBarrier::unpack(state).phase) ended |= kLaneBit[l];
      return;
    }
    if constexpr (kOp == MemoryBarrierOp::kTestParity) {
      if (barrier.phase != ((argument[l] & 1) != 0)) ended |= kLaneBit[l];
      return;
    }
    if constexpr (kOp == MemoryBarrierOp::kInitialise)
      barrier = {argument[l] & static_cast<uint32_t>(MemoryBarrier::kCountMask), argument[l], 0, false};
    if constexpr (kOp == MemoryBarrierOp::kInvalidate) barrier = {};
    if (kOp == MemoryBarrierOp::kComplete)
      barrier.bytes -= bytes[l];
    else if (bytes)
      barrier.bytes += bytes[l];
    if constexpr (kOp == MemoryBarrierOp::kArrive || kOp == MemoryBarrierOp::kArriveAndDrop) {
      // More arrivals than the phase expects are undefined; a phase must not go below zero.
      if (argument[l] > barrier.pending) {
        if (isGood) bad = l;
        isGood = false;
        return;
      }
      barrier.pending -= argument[l];
      if (kOp == MemoryBarrierOp::kArriveAndDrop) barrier.expected -= argument[l];
    }
    if constexpr (kOp == MemoryBarrierOp::kArrive || kOp == MemoryBarrierOp::kArriveAndDrop ||
                  kOp == MemoryBarrierOp::kComplete)
      barrier.endPhaseIfDone();
    const uint64_t after = barrier.pack();
    std::memcpy(at, &after, sizeof(after));
    if (i->op[0] != kNoOperand) slot<uint64_t>(context, i->op[0])[l] = before;
  });
  if (!isGood) return raiseFault(i, context, FaultKind::kIllegalInstruction, {bad, 0, 0, false});
  if constexpr (kTests) assignPredicate(active, predicate(context, i->op[0]), ended);
  return i + 1;
}

/// d, state.
const Instruction* pendingHandler(const Instruction* i, Context& context) {
  const uint64_t* state = slot<uint64_t>(context, i->op[1]);
  assign(activeLanes(i, context), slot<uint32_t>(context, i->op[0]),
         [=](uint32_t l) { return MemoryBarrier::unpack(state[l]).pending; });
  return i + 1;
}

}  // namespace

Handler selectCopy() { return &copyHandler; }

Handler selectMemoryBarrier(MemoryBarrierOp op) {
  using Op = MemoryBarrierOp;
  switch (op) {
    case Op::kInitialise: return &barrierHandler<Op::kInitialise>;
    case Op::kInvalidate: return &barrierHandler<Op::kInvalidate>;
    case Op::kArrive: return &barrierHandler<Op::kArrive>;
    case Op::kArriveAndDrop: return &barrierHandler<Op::kArriveAndDrop>;
    case Op::kExpect: return &barrierHandler<Op::kExpect>;
    case Op::kComplete: return &barrierHandler<Op::kComplete>;
    case Op::kTestState: return &barrierHandler<Op::kTestState>;
    case Op::kTestParity: return &barrierHandler<Op::kTestParity>;
    default: return &pendingHandler;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
