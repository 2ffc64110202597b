// SPDX-License-Identifier: Apache-2.0
// A warp: 32 lanes that execute together as long as they have the same next instruction.
//
// Lanes that part at a branch become splits: sets of lanes with a place in the code of their own. A join
// waits where they meet again (the branch's immediate postdominator) and makes one split of them. This is a
// matter of speed only: splits take turns, and lanes that wait at a join go on alone when the others do not
// come, so a lane may wait for what another one does, as on Volta and later.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/ptx/program_impl.h"
#include "softgpu/ptx/run/context.h"

namespace millpond::softgpu::ptx {

/// One call of a function by lanes of a warp.
struct Frame {
  const FunctionCode* function = nullptr;
  uint32_t functionIndex = 0;
  Frame* caller = nullptr;
  const Instruction* returnTo = nullptr;
  const CallSite* site = nullptr;
  std::byte* registers = nullptr;
  uint32_t lanes = 0;      // that have not returned
  uint32_t localBase = 0;  // in each lane's local memory
};

/// The frames of a block; returned ones are reused.
class FrameStore {
 public:
  explicit FrameStore(const ProgramImpl& program) : program_(program), free_(program.functions.size()) {}
  Frame* take(uint32_t function);
  void giveBack(Frame* frame) { free_[frame->functionIndex].push_back(frame); }

 private:
  struct Owned {
    Frame frame;
    std::unique_ptr<std::byte[]> memory;
  };
  const ProgramImpl& program_;
  std::vector<std::vector<Frame*>> free_;
  std::vector<std::unique_ptr<Owned>> all_;
};

class Warp {
 public:
  /// Prepares the warp for a block. `lanes` is the mask of the existing threads. Its first frame is allocated when it
  /// first runs, so that warps that run one after another share one.
  void begin(Block& block, uint32_t index, uint32_t lanes);
  /// Executes until the warp must stop.
  Stop run();

  uint32_t alive() const { return alive_; }
  uint32_t index() const { return index_; }
  bool canRun() const;
  /// The function that the current lanes execute, and the extent of their local memory.
  const FunctionCode& function() const { return *splits_[static_cast<size_t>(current_)].frame->function; }
  uint32_t localTop() const { return context.localBase + function().localBytes; }
  /// Wakes the splits that wait at a barrier; `result` is for those that reduce.
  void wakeFromBarrier(uint32_t barrier, uint32_t countTrue, bool areAllTrue);
  /// Where a thread of the warp waits, for a message: fills function, line and thread of the fault.
  void describeWait(Fault& fault) const;
  /// Returns all frames.
  void abandon();

  Context context{};
  /// %tid of each lane.
  alignas(64) uint32_t thread[3][32] = {};

  // Services for handlers, see context.h.
  const Instruction* diverge(const Instruction* branch, const Instruction* const* targets, const uint32_t* masks,
                             uint32_t count);
  const Instruction* join(const Instruction* at);
  const Instruction* pause(const Instruction* next);
  const Instruction* exit(const Instruction* at, uint32_t lanes);
  const Instruction* call(const Instruction* at, uint32_t function);
  const Instruction* callEach(const Instruction* at, const uint64_t* address);
  const Instruction* returnToCaller();
  const Instruction* waitFor(const Instruction* at, uint32_t lanes, uint32_t members, const uint64_t* values);
  uint32_t actForAll(const Instruction* at);
  const Instruction* barrier(const Instruction* at, BarrierKind kind, uint32_t id, uint32_t threads,
                             uint32_t predicate);
  const Instruction* fault(const Instruction* at, FaultKind kind, const FaultSite& site, std::string detail = {});

 private:
  static constexpr int32_t kNone = -1;

  struct Join {
    const Instruction* at = nullptr;
    Frame* frame = nullptr;
    int32_t parent = kNone;
    uint32_t pending = 0;  // lanes that have not arrived yet
    uint32_t arrived = 0;
    uint32_t age = 0;  // turns that others had while lanes waited
  };

  enum class State : uint8_t { kReady, kAtBarrier, kAtCollective };
  struct Split {
    const Instruction* next = nullptr;
    Frame* frame = nullptr;
    int32_t parent = kNone;  // the join at which its lanes are awaited
    uint32_t mask = 0;
    State state = State::kReady;
    BarrierKind barrierKind = BarrierKind::kSync;
    uint8_t barrier = 0;
    bool hasExchange = false;
    uint32_t members = 0;
    uint32_t exchangeMask = 0;
  };

  Split& current() { return splits_[static_cast<size_t>(current_)]; }
  int32_t newSplit(const Instruction* next, uint32_t mask, Frame* frame, int32_t parent);
  void freeSplit(int32_t split);
  int32_t newJoin(const Instruction* at, uint32_t pending, Frame* frame, int32_t parent);
  void freeJoin(int32_t join);
  const Instruction* load(int32_t split);
  const Instruction* switchAway(const Instruction* resumeAt);
  const Instruction* pickNext();
  void releaseArrived(int32_t join);
  void completeJoins(int32_t join);
  void completeCollectives();
  const Instruction* stop(Stop reason);
  /// Where a frame that these lanes enter must end.
  uint32_t leastStackEnd(uint32_t lanes) const;

  uint32_t stackEnd_[32] = {};
  Block* block_ = nullptr;
  uint32_t index_ = 0;
  uint32_t alive_ = 0;
  int32_t current_ = kNone;
  uint32_t freeSplits_ = 0;  // a bit per element of splits_
  uint32_t collecting_ = 0;  // splits that wait at a collective instruction
  std::array<Split, 32> splits_;
  std::array<Exchange, 32> exchanges_;  // of the splits
  std::vector<int32_t> order_;          // splits in use; the last one goes first
  std::vector<Join> joins_;
  std::vector<int32_t> freeJoins_;
  std::vector<int32_t> usedJoins_;
};

}  // namespace millpond::softgpu::ptx
