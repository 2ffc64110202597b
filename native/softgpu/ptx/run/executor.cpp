// SPDX-License-Identifier: Apache-2.0
// The pool of threads, and how the blocks of grids are dealt out to them.
#include <sched.h>

#include <algorithm>
#include <cfenv>
#include <condition_variable>
#include <deque>
#include <new>
#include <thread>

#include "softgpu/ptx/run/block.h"

namespace millpond::softgpu::ptx {
namespace {

/// Blocks of a grid in progress at a time, unless it is cooperative.
constexpr uint64_t kMaxResidentBlocks = 64;
/// Blocks that a thread runs for one grid before it checks the others.
constexpr int kBlocksPerTurn = 64;
constexpr uint32_t kMaxGridY = 65535;
constexpr uint32_t kMaxGridX = INT32_MAX;
constexpr uint32_t kMaxBlockZ = 64;
/// Frames here are larger than those of a device, which keeps values in registers, so stacks of unknown depth get more
/// than requested.
constexpr uint64_t kStackFactor = 4;
constexpr uint64_t kMaxLocalBytes = 512 * 1024;

uint32_t coreCount() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<uint32_t>(std::max(CPU_COUNT(&set), 1));
  return std::max(std::thread::hardware_concurrency(), 1u);
}

/// A grid in progress.
class Grid {
 public:
  Grid() = default;

  GridState state;
  uint64_t total = 0;

  /// A block to run, or null if there is none for this thread now.
  std::unique_ptr<Block> take() {
    std::lock_guard lock(mutex_);
    if (state.isStopped.load(std::memory_order_relaxed)) return nullptr;
    if (state.isCancelled()) {
      state.cancel();
      return nullptr;
    }
    bool mayStart = state.launch.cooperative || resident_ < kMaxResidentBlocks;
    if (next_ < total && (mayStart || suspended_.empty())) {
      std::unique_ptr<Block> block;
      if (!idle_.empty()) {
        block = std::move(idle_.back());
        idle_.pop_back();
      } else {
        block = std::make_unique<Block>(state);
      }
      block->begin(next_++);
      ++resident_;
      return block;
    }
    if (suspended_.empty()) return nullptr;
    std::unique_ptr<Block> block = std::move(suspended_.front());
    suspended_.pop_front();
    return block;
  }

  void finish(std::unique_ptr<Block> block) {
    std::lock_guard lock(mutex_);
    --resident_;
    ++finished_;
    idle_.push_back(std::move(block));
  }
  void suspend(std::unique_ptr<Block> block) {
    std::lock_guard lock(mutex_);
    suspended_.push_back(std::move(block));
  }
  bool hasOtherBlocks() {
    std::lock_guard lock(mutex_);
    return next_ < total || !suspended_.empty();
  }
  bool hasWork() {
    std::lock_guard lock(mutex_);
    return !state.isStopped.load(std::memory_order_relaxed) && (next_ < total || !suspended_.empty());
  }
  bool isOver() {
    std::lock_guard lock(mutex_);
    return finished_ == total || state.isStopped.load(std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;
  uint64_t next_ = 0;
  uint64_t finished_ = 0;
  uint64_t resident_ = 0;
  std::vector<std::unique_ptr<Block>> idle_;
  std::deque<std::unique_ptr<Block>> suspended_;

 public:
  uint32_t users = 0;  // threads that work on it; guarded by the pool's mutex
};

/// Runs blocks of a grid on this thread, up to `limit` of them.
void workUnguarded(Grid& grid, int limit) {
  for (int i = 0; i < limit; ++i) {
    std::unique_ptr<Block> block = grid.take();
    if (!block) return;
    Block::Outcome outcome = block->run();
    while (outcome == Block::Outcome::kPaused && !grid.hasOtherBlocks()) outcome = block->run();
    if (outcome == Block::Outcome::kFinished) {
      grid.finish(std::move(block));
    } else if (outcome == Block::Outcome::kPaused) {
      grid.suspend(std::move(block));
    } else {
      return;
    }
  }
}

void work(Grid& grid, int limit) {
  try {
    workUnguarded(grid, limit);
  } catch (const std::bad_alloc&) {
    grid.state.failForMemory();
  }
}

/// Default rounding and no flushing, whatever the calling thread had.
class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&before_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

LaunchResult invalid(std::string message) {
  LaunchResult result;
  result.status = LaunchResult::Status::kInvalid;
  result.message = std::move(message);
  return result;
}

std::string text(const Dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

/// Empty if the launch is valid.
std::string problemOf(const KernelInfo& info, const Launch& launch) {
  const Dim3& block = launch.block;
  const Dim3& grid = launch.grid;
  if (!launch.memory) return "no memory map was given";
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > kMaxThreadsPerBlock || block.y > kMaxThreadsPerBlock ||
      block.z > kMaxBlockZ || block.count() > kMaxThreadsPerBlock) {
    return "a block of " + text(block) + " threads is not possible: at most (1024, 1024, 64) and 1024 in all";
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > kMaxGridX || grid.y > kMaxGridY || grid.z > kMaxGridY) {
    return "a grid of " + text(grid) + " blocks is not possible: at most (2147483647, 65535, 65535)";
  }
  if (block.count() > info.maxThreads) {
    return "a block of " + std::to_string(block.count()) + " threads exceeds the " + std::to_string(info.maxThreads) +
           " that the kernel was compiled for";
  }
  if (info.requiredBlock &&
      (info.requiredBlock->x != block.x || info.requiredBlock->y != block.y || info.requiredBlock->z != block.z)) {
    return "the kernel requires blocks of " + text(*info.requiredBlock) + " threads, not " + text(block);
  }
  if (launch.parameters.size() < info.parameterBytes) {
    return "the kernel takes " + std::to_string(info.parameterBytes) + " bytes of parameters, not " +
           std::to_string(launch.parameters.size());
  }
  return "";
}

}  // namespace

class Executor::Impl {
 public:
  explicit Impl(uint32_t threads) {
    uint32_t count = threads ? threads : coreCount();
    for (uint32_t i = 1; i < count; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      isClosing_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(Grid& grid) {
    grid.state.id = nextId_.fetch_add(1, std::memory_order_relaxed);
    bool isShared = grid.total > 1 && !threads_.empty();
    if (isShared) {
      {
        std::lock_guard lock(mutex_);
        grids_.push_back(&grid);
      }
      if (grid.total == 2)
        wake_.notify_one();
      else
        wake_.notify_all();
    }
    {
      FloatEnvironment environment;
      work(grid, INT32_MAX);
      // Blocks that other threads run may be suspended while this one waits for them: resumes them.
      while (isShared && !grid.isOver()) {
        waitForWork(grid);
        work(grid, INT32_MAX);
      }
      while (!isShared && !grid.isOver()) work(grid, INT32_MAX);
    }
    if (isShared) {
      std::unique_lock lock(mutex_);
      grids_.erase(std::find(grids_.begin(), grids_.end(), &grid));
      done_.wait(lock, [&] { return grid.users == 0; });
    }
  }

 private:
  void waitForWork(Grid& grid) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return grid.isOver() || grid.hasWork(); });
  }

  /// The next grid, in turn, that has a block to run.
  Grid* choose() {
    for (size_t i = 0; i < grids_.size(); ++i) {
      Grid* grid = grids_[(turn_ + i) % grids_.size()];
      if (!grid->hasWork()) continue;
      turn_ = (turn_ + i + 1) % grids_.size();
      return grid;
    }
    return nullptr;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      Grid* grid = nullptr;
      wake_.wait(lock, [&] { return isClosing_ || (grid = choose()) != nullptr; });
      if (isClosing_) return;
      ++grid->users;
      lock.unlock();
      work(*grid, kBlocksPerTurn);
      lock.lock();
      --grid->users;
      // The thread that called run() waits for the end of its grid, or for a suspended block.
      done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<Grid*> grids_;
  size_t turn_ = 0;
  bool isClosing_ = false;
  std::atomic<uint64_t> nextId_{1};
  std::vector<std::thread> threads_;
};

Executor::Executor(uint32_t threads) : impl_(std::make_unique<Impl>(threads)) {}
Executor::~Executor() = default;

LaunchResult Executor::run(const Kernel& kernel, const Launch& launch) {
  const KernelInfo& info = kernel.info();
  if (std::string problem = problemOf(info, launch); !problem.empty())
    return invalid("kernel '" + info.name + "': " + problem);
  const ProgramImpl& code = kernel.module().code();
  Grid grid;
  GridState& state = grid.state;
  state.module = &kernel.module();
  state.info = &info;
  state.kernel = &code.kernelCode[kernel.index()];
  state.function = &code.functions[state.kernel->function];
  state.launch = launch;
  state.parameters.assign(launch.parameters.begin(), launch.parameters.begin() + info.parameterBytes);
  uint64_t shared = launch.dynamicSharedBytes ? uint64_t{state.kernel->dynamicSharedStart} + launch.dynamicSharedBytes
                                              : info.staticSharedBytes;
  if (shared > kMaxSharedBytesPerBlock) {
    return invalid("kernel '" + info.name + "': " + std::to_string(shared) +
                   " bytes of shared memory for a block exceed " + std::to_string(kMaxSharedBytesPerBlock));
  }
  state.sharedBytes = static_cast<uint32_t>(shared);
  uint64_t local = state.kernel->stackBytes ? *state.kernel->stackBytes
                                            : state.function->localBytes + kStackFactor * uint64_t{launch.stackBytes};
  state.localBytes = static_cast<uint32_t>(std::min((local + 15) / 16 * 16, kMaxLocalBytes));
  grid.total = launch.grid.count();
  impl_->run(grid);
  LaunchResult result;
  std::lock_guard lock(state.mutex);
  if (state.hasFault) {
    result.status = LaunchResult::Status::kFault;
    result.fault = state.fault;
    result.message = describe(state.fault);
  } else if (state.lacksMemory) {
    result.status = LaunchResult::Status::kNoMemory;
    result.message = "no memory left to run kernel '" + info.name + "': a block of it needs " +
                     std::to_string(state.localBytes * launch.block.count()) + " bytes of local memory";
  } else if (state.wasCancelled) {
    result.status = LaunchResult::Status::kCancelled;
    result.message = "the grid of kernel '" + info.name + "' was cancelled";
  }
  return result;
}

std::string_view faultName(Fault::Kind kind) {
  switch (kind) {
    case FaultKind::kIllegalAddress: return "illegal address";
    case FaultKind::kMisalignedAddress: return "misaligned address";
    case FaultKind::kSharedOutOfRange: return "shared memory access out of range";
    case FaultKind::kLocalOutOfRange: return "local memory access out of range";
    case FaultKind::kConstOutOfRange: return "const memory access out of range";
    case FaultKind::kStackOverflow: return "stack overflow";
    case FaultKind::kIllegalInstruction: return "illegal instruction";
    case FaultKind::kTrap: return "trap";
    case FaultKind::kAssert: return "assertion failed";
    case FaultKind::kDeadlock: return "deadlock";
  }
  return "fault";
}

std::string describe(const Fault& fault) {
  std::string out(faultName(fault.kind));
  out += " in function '" + fault.function + "'";
  if (fault.line) out += " at PTX line " + std::to_string(fault.line);
  out += ", block " + text(fault.block) + ", thread " + text(fault.thread);
  if (fault.bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (uint64_t rest = fault.address; rest || hex.empty(); rest >>= 4) hex.insert(hex.begin(), kDigits[rest & 15]);
    out += std::string(": ") + (fault.isWrite ? "write" : "read") + " of " + std::to_string(fault.bytes) +
           " bytes at 0x" + hex;
  }
  if (!fault.detail.empty()) out += ": " + fault.detail;
  return out;
}

}  // namespace millpond::softgpu::ptx
