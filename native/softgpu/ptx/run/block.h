// SPDX-License-Identifier: Apache-2.0
// A block of threads in execution: its warps, shared memory and barriers. One thread of the host at a time
// runs it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "softgpu/ptx/module_impl.h"
#include "softgpu/ptx/run/barrier_watch.h"
#include "softgpu/ptx/run/race.h"
#include "softgpu/ptx/run/warp.h"

namespace millpond::softgpu::ptx {

/// State that all blocks of a running grid share.
struct GridState {
  const ModuleImpl* module = nullptr;
  const KernelInfo* info = nullptr;
  const KernelCode* kernel = nullptr;
  const FunctionCode* function = nullptr;
  Launch launch;  // `parameters` refers to `parameters` below
  std::vector<std::byte> parameters;
  uint32_t sharedBytes = 0;
  uint32_t localBytes = 0;  // per thread
  uint64_t id = 0;
  std::atomic<bool> isStopped{false};

  /// Stops the grid. The first fault is kept.
  void fail(Fault fault);
  /// A fault that ends a thread, and the grid when its other threads have ended too, or do not end within reasonable
  /// time.
  void note(Fault fault);
  /// Whether the waiting threads keep waiting: no ended thread will arrive.
  bool isOverdue();
  /// Stops the grid because the launch's cancel flag was set, or because there is no memory.
  void cancel();
  void failForMemory();
  bool isCancelled() const { return launch.cancel && launch.cancel->load(std::memory_order_relaxed); }

  /// Text of a kernel's printf, as a whole.
  void print(std::string_view text);

  std::mutex mutex;
  std::atomic<bool> hasFault{false};
  std::atomic<uint32_t> turnsWithFault{0};
  Fault fault;
  bool wasCancelled = false;
  bool lacksMemory = false;
};

class Block {
 public:
  explicit Block(GridState& grid);

  /// Starts block number `index` of the grid; x counts fastest.
  void begin(uint64_t index);

  enum class Outcome : uint8_t {
    kFinished,
    kPaused,  // another block of the grid should run for a while
    kFailed,  // the grid has been stopped
  };
  Outcome run();

  GridState& grid() { return grid_; }
  FrameStore& frames() { return frames_; }
  bool hasOtherWarps() const { return liveWarps_ > 1; }
  const uint32_t* position() const { return position_; }
  uint32_t warpCount() const { return static_cast<uint32_t>(warps_.size()); }

  /// A warp's lanes arrive at a barrier. Returns true if that completes it: all waiting threads have been woken.
  bool reach(uint32_t barrier, Warp& warp, uint32_t lanes, BarrierKind kind, uint32_t threads, uint32_t predicate);
  void lanesEnded(uint32_t count);
  bool findRange(uint64_t address, uint32_t bytes, bool isWrite);

  /// For programs with checks: the memory that the launch may use, exactly; null: none.
  const Inspector::Range* inspected(uint64_t address, uint32_t bytes, bool isWrite);
  /// Null if races are not checked.
  RaceDetector* races() { return races_.get(); }
  /// Null if barriers are not checked.
  BarrierWatch* barriers() { return barrierWatch_.get(); }
  uint32_t endedThreads() const { return static_cast<uint32_t>(grid_.launch.block.count()) - liveThreads_; }

 private:
  struct Barrier {
    bool isInUse = false;
    uint32_t expected = 0;  // threads; 0: all that have not ended
    uint32_t waiting = 0;   // threads
    uint32_t countTrue = 0;
    bool areAllTrue = true;
    std::vector<uint32_t> lanes;  // number that have arrived, per warp
  };
  static constexpr uint32_t kBarriers = kNamedBarriers + 1;

  AccessRange parameterRange() const;
  bool isComplete(const Barrier& barrier) const;
  bool completeIfDone(uint32_t barrier);
  void reportDeadlock();

  GridState& grid_;
  FrameStore frames_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<std::byte> shared_;
  std::vector<std::byte> local_;
  std::array<Barrier, kBarriers> barriers_;
  std::array<AccessRange, kCachedRanges> ranges_{};
  std::array<Inspector::Range, kCachedRanges> inspectedRanges_{};
  std::unique_ptr<RaceDetector> races_;
  std::unique_ptr<BarrierWatch> barrierWatch_;
  uint32_t position_[3] = {0, 0, 0};
  uint32_t liveThreads_ = 0;
  uint32_t liveWarps_ = 0;
};

}  // namespace millpond::softgpu::ptx
