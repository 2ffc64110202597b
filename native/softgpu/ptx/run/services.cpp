// SPDX-License-Identifier: Apache-2.0
// Services of the engine for handlers, see context.h.
#include <chrono>

#include "softgpu/ptx/operations.h"
#include "softgpu/ptx/run/block.h"

namespace millpond::softgpu::ptx {
namespace {

uint64_t nanoseconds(std::chrono::nanoseconds time) { return static_cast<uint64_t>(time.count()); }

}  // namespace

const Instruction* divergeBranch(const Instruction* branch, Context& context, uint32_t taken) {
  if (branch->target == branch + 1) return branch + 1;
  const Instruction* targets[2] = {branch + 1, branch->target};
  uint32_t masks[2] = {context.mask & ~taken, taken};
  return context.warp->diverge(branch, targets, masks, 2);
}

const Instruction* divergeTable(const Instruction* branch, Context& context, const uint32_t* index) {
  const BranchTable& table = *static_cast<const BranchTable*>(branch->table);
  const Instruction* targets[32];
  uint32_t masks[32];
  uint32_t count = 0;
  for (uint32_t l = 0; l < 32; ++l) {
    if (!(context.mask >> l & 1)) continue;
    const Instruction* target = table.targets[index[l]];
    uint32_t g = 0;
    while (g < count && targets[g] != target) ++g;
    if (g == count) {
      targets[count] = target;
      masks[count++] = 0;
    }
    masks[g] |= uint32_t{1} << l;
  }
  if (count == 1) return targets[0];
  return context.warp->diverge(branch, targets, masks, count);
}

const Instruction* joinLanes(const Instruction* at, Context& context) { return context.warp->join(at); }
const Instruction* pauseWarp(const Instruction* next, Context& context) { return context.warp->pause(next); }
const Instruction* exitLanes(const Instruction* at, Context& context, uint32_t lanes) {
  return context.warp->exit(at, lanes);
}
const Instruction* callFunction(const Instruction* at, Context& context, uint32_t function) {
  return context.warp->call(at, function);
}
const Instruction* callIndirect(const Instruction* at, Context& context, const uint64_t* address) {
  return context.warp->callEach(at, address);
}
const Instruction* returnLanes(const Instruction*, Context& context) { return context.warp->returnToCaller(); }
const Instruction* waitForLanes(const Instruction* at, Context& context, uint32_t lanes, uint32_t members,
                                const uint64_t* values) {
  return context.warp->waitFor(at, lanes, members, values);
}

uint32_t actForAll(const Instruction* at, Context& context) { return context.warp->actForAll(at); }
uint32_t frameEnd(const Context& context) { return context.warp->localTop(); }
uint32_t aliveLanes(const Context& context) { return context.warp->alive(); }

const Instruction* reachBarrier(const Instruction* at, Context& context, BarrierKind kind, uint32_t id,
                                uint32_t threads, uint32_t predicate) {
  if (id >= kNamedBarriers && at->immediate != kIsClusterBarrier) {
    return raiseFault(at, context, FaultKind::kIllegalInstruction,
                      {static_cast<uint32_t>(__builtin_ctz(context.mask)), 0, 0, false});
  }
  return context.warp->barrier(at, kind, id, threads, predicate);
}

const Instruction* raiseFault(const Instruction* at, Context& context, FaultKind kind, const FaultSite& site) {
  return context.warp->fault(at, kind, site);
}

bool findRange(Context& context, uint64_t address, uint32_t bytes, bool isWrite) {
  return context.block->findRange(address, bytes, isWrite);
}

bool isInSpace(const Context& context, Space space, uint64_t address) {
  uint64_t window = address >> kWindowShift << kWindowShift;
  uint64_t parameters = reinterpret_cast<uint64_t>(context.parameters);
  bool isParameter = address >= parameters && address - parameters < context.parameterBytes;
  switch (space) {
    case Space::kShared: return window == kSharedWindow;
    case Space::kLocal: return window == kLocalWindow;
    case Space::kParam: return isParameter;
    case Space::kConst: return context.block->grid().module->isConst(address);
    default: return window == kGlobalWindow && !isParameter && !context.block->grid().module->isConst(address);
  }
}

void fenceMemory() {
#ifdef __SANITIZE_THREAD__
  // The thread sanitizer does not support fences, but it does know that an exchange orders surrounding accesses.
  static std::atomic<uint32_t> order;
  order.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

uint64_t specialRegister(const Context& context, uint32_t which, uint32_t lane) {
  const GridState& grid = context.block->grid();
  const Launch& launch = grid.launch;
  uint64_t bit = uint64_t{1} << lane;
  auto clock = [] { return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()); };
  auto timer = [] { return nanoseconds(std::chrono::system_clock::now().time_since_epoch()); };
  switch (static_cast<Special>(which)) {
    case Special::kTidX: return context.threadIndex[0][lane];
    case Special::kTidY: return context.threadIndex[1][lane];
    case Special::kTidZ: return context.threadIndex[2][lane];
    case Special::kNtidX: return launch.block.x;
    case Special::kNtidY: return launch.block.y;
    case Special::kNtidZ: return launch.block.z;
    case Special::kCtaidX: return context.blockIndex[0];
    case Special::kCtaidY: return context.blockIndex[1];
    case Special::kCtaidZ: return context.blockIndex[2];
    case Special::kNctaidX: return launch.grid.x;
    case Special::kNctaidY: return launch.grid.y;
    case Special::kNctaidZ: return launch.grid.z;
    case Special::kLaneId: return lane;
    case Special::kWarpId: return context.warp->index();
    case Special::kNwarpId: return kMaxThreadsPerBlock / kWarpSize;
    case Special::kSmId: return 0;
    case Special::kNsmId: return launch.multiprocessors;
    case Special::kGridId: return grid.id;
    case Special::kLanemaskEq: return bit;
    case Special::kLanemaskLt: return bit - 1;
    case Special::kLanemaskLe: return (bit - 1) | bit;
    case Special::kLanemaskGe: return ~(bit - 1) & kAllLanes;
    case Special::kLanemaskGt: return ~((bit - 1) | bit) & kAllLanes;
    case Special::kClock:
    case Special::kClock64: return clock();
    case Special::kClockHi: return clock() >> 32;
    case Special::kGlobalTimer:
    case Special::kGlobalTimerLo: return timer();
    case Special::kGlobalTimerHi: return timer() >> 32;
    case Special::kDynamicSharedBytes: return launch.dynamicSharedBytes;
    case Special::kTotalSharedBytes: return grid.sharedBytes;
    case Special::kDynamicSharedStart: return grid.kernel->dynamicSharedStart;
    case Special::kParameterStart: return reinterpret_cast<uint64_t>(context.parameters);
    case Special::kZero: return 0;
    case Special::kOne: return 1;
    default: return launch.environment[(which - static_cast<uint32_t>(Special::kEnvironment)) % 32];
  }
}

}  // namespace millpond::softgpu::ptx
