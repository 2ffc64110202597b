// SPDX-License-Identifier: Apache-2.0
// The instruction handlers' view of the executing warp. Included by code that is compiled for several instruction sets
// of the host, so: no inline function with external linkage, no standard containers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softgpu/ptx/fault_kind.h"
#include "softgpu/ptx/instruction.h"
#include "softgpu/ptx/types.h"

namespace millpond::softgpu::ptx {

class Warp;
class Block;

inline constexpr uint32_t kAllLanes = UINT32_MAX;

/// Addresses that were found to be accessible, so that the memory map is rarely queried.
struct AccessRange {
  uint64_t begin;
  uint64_t end;
  bool isWritable;
};
inline constexpr uint32_t kCachedRanges = 4;

/// Backward branches that a group of lanes may take before others get their turn; fewer if it appears to wait for
/// others, that is after atomics and volatile loads.
inline constexpr int32_t kTurnBudget = 4096;
inline constexpr int32_t kSpinBudget = 64;

/// Why a warp stopped.
enum class Stop : uint8_t {
  kNone,
  kPaused,   // its time is over, or another warp of the block should run
  kBlocked,  // all its lanes wait for other warps
  kExited,   // all its lanes have ended
  kFailed,   // the grid ends: fault or cancellation
};

/// A lane's value for a collective instruction, if lanes arrive there in several groups.
struct Exchange {
  uint64_t value[32];
};

struct Context {
  /// [0] registers of the current frame, [1] constants of the module.
  std::byte* bases[2];
  uint32_t mask;   // active lanes, never 0
  uint32_t carry;  // CC.CF, a bit per lane
  /// Backward branches until the warp checks whether something else should run.
  int32_t budget;
  /// The lanes may be waiting for others: they used atomics or volatile loads since the budget was set.
  bool mayWait;
  Stop stop;

  std::byte* shared;
  uint32_t sharedBytes;
  uint32_t localBytes;  // of one lane; the lanes follow one another
  std::byte* local;
  uint32_t localBase;  // of the current frame within a lane's local memory
  uint32_t*
      stackEnd;  // of each lane: where its frames have to end, below what `alloca` took from the end of its local memory
  uint32_t blockIndex[3];
  const std::byte* parameters;
  uint32_t parameterBytes;

  AccessRange* ranges;  // kCachedRanges, shared by the warps of a block

  /// Set while a collective instruction is executed that had to wait for lanes elsewhere: the values of all.
  const Exchange* exchange;
  uint32_t exchangeMask;  // lanes that take part in it

  const uint32_t* threadIndex[3];  // 32 values each
  Warp* warp;
  Block* block;
};

// Services of the engine, see warp.cpp and memory.cpp.

/// Lanes `taken` (some, not all of the active ones) go to `branch->target`, the others continue.
const Instruction* divergeBranch(const Instruction* branch, Context& context, uint32_t taken);
/// Each active lane goes to the target in the branch table that its index selects; all indices are valid.
const Instruction* divergeTable(const Instruction* branch, Context& context, const uint32_t* index);
/// The active lanes have reached a place where lanes reconverge.
const Instruction* joinLanes(const Instruction* join, Context& context);
/// The budget is used up; `next` is executed when the lanes' turn comes.
const Instruction* pauseWarp(const Instruction* next, Context& context);
/// Active lanes end.
const Instruction* exitLanes(const Instruction* at, Context& context, uint32_t lanes);
/// Calls a function of the program, by its index, with the CallSite in `table`.
const Instruction* callFunction(const Instruction* call, Context& context, uint32_t function);
/// Calls the function whose address each active lane has.
const Instruction* callIndirect(const Instruction* call, Context& context, const uint64_t* address);
const Instruction* returnLanes(const Instruction* at, Context& context);
/// `lanes`, some or all of the active ones, wait until all lanes of `members` that have not ended have reached a
/// collective instruction with the same `members`, then execute `at` again with Context::exchange set; the other active
/// lanes execute `at` again immediately. `values`: the value of each lane.
const Instruction* waitForLanes(const Instruction* at, Context& context, uint32_t lanes, uint32_t members,
                                const uint64_t* values);
/// At an instruction that the lanes of a warp execute together, with Context::exchange set: lets the active ones
/// execute it for all that have arrived; the others continue after it. Returns all of these lanes; 0 if some are in
/// another call of the function.
uint32_t actForAll(const Instruction* at, Context& context);
/// Where the current frame ends in each lane's local memory.
uint32_t frameEnd(const Context& context);
/// Lanes of this warp that have not ended.
uint32_t aliveLanes(const Context& context);

/// The numbered barriers of a block; the barrier of its cluster has the number after them.
inline constexpr uint32_t kNamedBarriers = 16;
inline constexpr uint32_t kClusterBarrier = kNamedBarriers;
/// Instruction::immediate of barriers that may specify it.
inline constexpr int64_t kIsClusterBarrier = 1;

enum class BarrierKind : uint8_t { kSync, kArrive, kReduceAnd, kReduceOr, kReduceCount };
/// The active lanes arrive at barrier `id` with `threads` expected (0: all of the block); `predicate` is their input to
/// a reduction. Returns the next instruction, or null if they must wait.
const Instruction* reachBarrier(const Instruction* at, Context& context, BarrierKind kind, uint32_t id,
                                uint32_t threads, uint32_t predicate);

struct FaultSite {
  uint32_t lane;
  uint64_t address;
  uint32_t bytes;
  bool isWrite;
};
/// Ends the grid with a fault of the lane; returns null.
const Instruction* raiseFault(const Instruction* at, Context& context, FaultKind kind, const FaultSite& site);

/// The accessible range around [address, address + bytes), entered into the cache; false if there is none.
bool findRange(Context& context, uint64_t address, uint32_t bytes, bool isWrite);

/// Value of a special register for one lane; `which` is a Special.
uint64_t specialRegister(const Context& context, uint32_t which, uint32_t lane);
/// Whether a generic address is in a state space.
bool isInSpace(const Context& context, Space space, uint64_t address);
/// Executes a function of the device's runtime with the CallSite in `table`.
const Instruction* callBuiltin(const Instruction* call, Context& context);
/// Orders memory accesses like fence.sc.
void fenceMemory();

}  // namespace millpond::softgpu::ptx
