// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/run/block.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace millpond::softgpu::ptx {
namespace {

/// Turns of warps after which a block yields to another one of its grid.
constexpr uint32_t kTurnsPerBlock = 4096;
constexpr size_t kSharedAlignment = 128;
/// Turns of all warps of a grid after a thread of it has ended with a fault.
constexpr uint32_t kTurnsWithFault = 4096;

std::byte* aligned(std::vector<std::byte>& memory) {
  size_t misaligned = reinterpret_cast<uintptr_t>(memory.data()) % kSharedAlignment;
  return memory.data() + (misaligned ? kSharedAlignment - misaligned : 0);
}

}  // namespace

void GridState::fail(Fault first) {
  std::lock_guard lock(mutex);
  if (!hasFault) {
    hasFault = true;
    fault = std::move(first);
  }
  isStopped.store(true, std::memory_order_relaxed);
}

void GridState::note(Fault first) {
  std::lock_guard lock(mutex);
  if (hasFault) return;
  fault = std::move(first);
  hasFault = true;
}

bool GridState::isOverdue() {
  if (!hasFault.load(std::memory_order_relaxed)) return false;
  if (turnsWithFault.fetch_add(1, std::memory_order_relaxed) < kTurnsWithFault) return false;
  isStopped.store(true, std::memory_order_relaxed);
  return true;
}

void GridState::cancel() {
  std::lock_guard lock(mutex);
  wasCancelled = true;
  isStopped.store(true, std::memory_order_relaxed);
}

void GridState::failForMemory() {
  std::lock_guard lock(mutex);
  lacksMemory = true;
  isStopped.store(true, std::memory_order_relaxed);
}

void GridState::print(std::string_view text) {
  std::lock_guard lock(mutex);
  if (launch.print)
    launch.print(text);
  else
    std::fwrite(text.data(), 1, text.size(), stdout);
}

Block::Block(GridState& grid) : grid_(grid), frames_(grid.module->code()) {
  uint32_t threads = static_cast<uint32_t>(grid.launch.block.count());
  uint32_t warps = (threads + kWarpSize - 1) / kWarpSize;
  shared_.resize(grid.sharedBytes + kSharedAlignment);
  local_.resize(size_t{warps} * kWarpSize * grid.localBytes + kSharedAlignment);
  const Dim3& shape = grid.launch.block;
  for (uint32_t w = 0; w < warps; ++w) {
    auto warp = std::make_unique<Warp>();
    for (uint32_t l = 0; l < kWarpSize; ++l) {
      uint32_t thread = w * kWarpSize + l;
      warp->thread[0][l] = thread % shape.x;
      warp->thread[1][l] = thread / shape.x % shape.y;
      warp->thread[2][l] = thread / shape.x / shape.y;
    }
    Context& context = warp->context;
    context.bases[1] = const_cast<std::byte*>(grid.module->constants());
    context.shared = aligned(shared_);
    context.sharedBytes = grid.sharedBytes;
    context.localBytes = grid.localBytes;
    context.local = aligned(local_) + size_t{w} * kWarpSize * grid.localBytes;
    context.parameters = grid.parameters.data();
    context.parameterBytes = static_cast<uint32_t>(grid.parameters.size());
    context.ranges = ranges_.data();
    warps_.push_back(std::move(warp));
  }
  for (Barrier& barrier : barriers_) barrier.lanes.assign(warps, 0);
  if (grid.launch.inspector && grid.module->code().checks.races && grid.sharedBytes > 0)
    races_ = std::make_unique<RaceDetector>(threads, grid.sharedBytes);
  if (grid.launch.inspector && grid.module->code().checks.barriers) barrierWatch_ = std::make_unique<BarrierWatch>();
}

void Block::begin(uint64_t index) {
  const Dim3& shape = grid_.launch.grid;
  position_[0] = static_cast<uint32_t>(index % shape.x);
  position_[1] = static_cast<uint32_t>(index / shape.x % shape.y);
  position_[2] = static_cast<uint32_t>(index / shape.x / shape.y);
  ranges_.fill({0, 0, false});
  inspectedRanges_.fill({});
  if (races_) races_->begin();
  if (barrierWatch_) barrierWatch_->begin();
  for (Barrier& barrier : barriers_) {
    if (!barrier.isInUse) continue;
    barrier.isInUse = false;
    std::fill(barrier.lanes.begin(), barrier.lanes.end(), 0);
  }
  liveThreads_ = static_cast<uint32_t>(grid_.launch.block.count());
  liveWarps_ = warpCount();
  for (uint32_t w = 0; w < warpCount(); ++w) {
    Context& context = warps_[w]->context;
    for (size_t k = 0; k < 3; ++k) context.blockIndex[k] = position_[k];
    uint32_t threads = std::min(liveThreads_ - w * kWarpSize, kWarpSize);
    uint32_t lanes = threads == kWarpSize ? kAllLanes : (uint32_t{1} << threads) - 1;
    warps_[w]->begin(*this, w, lanes);
  }
}

Block::Outcome Block::run() {
  uint32_t turns = 0;
  while (liveWarps_ > 0) {
    bool isProgress = false;
    for (auto& warp : warps_) {
      if (!warp->canRun()) continue;
      isProgress = true;
      Stop stop = warp->run();
      if (stop == Stop::kExited) --liveWarps_;
      if (stop == Stop::kFailed) {
        if (grid_.isCancelled()) grid_.cancel();
        break;
      }
      if (stop == Stop::kPaused) ++turns;
    }
    if (grid_.isStopped.load(std::memory_order_relaxed)) {
      for (auto& warp : warps_) warp->abandon();
      return Outcome::kFailed;
    }
    if (!isProgress) reportDeadlock();
    if (turns >= kTurnsPerBlock) return Outcome::kPaused;
  }
  return Outcome::kFinished;
}

void Block::reportDeadlock() {
  Fault fault;
  fault.kind = FaultKind::kDeadlock;
  fault.block = {position_[0], position_[1], position_[2]};
  for (const auto& warp : warps_) {
    if (warp->alive() == 0) continue;
    warp->describeWait(fault);
    break;
  }
  fault.detail = "every thread of the block waits at a barrier or for lanes of its warp that do not arrive";
  grid_.fail(std::move(fault));
}

bool Block::isComplete(const Barrier& barrier) const {
  if (barrier.expected == 0) return barrier.waiting == liveThreads_;
  // Arrivals count by whole warps once all lanes that have not ended are there.
  uint32_t arrived = 0;
  for (size_t w = 0; w < warps_.size(); ++w) {
    uint32_t lanes = barrier.lanes[w];
    if (lanes == 0) continue;
    bool isWhole = (warps_[w]->alive() & ~lanes) == 0;
    arrived += isWhole ? kWarpSize : static_cast<uint32_t>(std::popcount(lanes));
  }
  return arrived >= barrier.expected;
}

bool Block::completeIfDone(uint32_t id) {
  Barrier& barrier = barriers_[id];
  if (!barrier.isInUse || !isComplete(barrier)) return false;
  uint32_t countTrue = barrier.countTrue;
  bool areAllTrue = barrier.areAllTrue;
  barrier.isInUse = false;
  std::fill(barrier.lanes.begin(), barrier.lanes.end(), 0);
  if (races_) races_->completeBarrier(id, liveThreads_);
  if (barrierWatch_) reportBarrier(*this, barrierWatch_->complete(id, endedThreads() > 0));
  for (auto& warp : warps_) {
    if (warp->alive()) warp->wakeFromBarrier(id, countTrue, areAllTrue);
  }
  return true;
}

bool Block::reach(uint32_t id, Warp& warp, uint32_t lanes, BarrierKind kind, uint32_t threads, uint32_t predicate) {
  Barrier& barrier = barriers_[id];
  if (!barrier.isInUse) {
    barrier.isInUse = true;
    barrier.expected = threads;
    barrier.waiting = 0;
    barrier.countTrue = 0;
    barrier.areAllTrue = true;
  }
  barrier.lanes[warp.index()] |= lanes;
  if (races_) races_->arriveAtBarrier(id, warp.index(), lanes, kind != BarrierKind::kArrive);
  uint32_t count = static_cast<uint32_t>(std::popcount(lanes));
  if (kind != BarrierKind::kArrive) barrier.waiting += count;
  uint32_t isTrue = static_cast<uint32_t>(std::popcount(predicate));
  barrier.countTrue += isTrue;
  barrier.areAllTrue &= isTrue == count;
  return completeIfDone(id);
}

void Block::lanesEnded(uint32_t count) {
  liveThreads_ -= count;
  if (liveThreads_ == 0) return;
  for (uint32_t id = 0; id < kBarriers; ++id) {
    if (barriers_[id].isInUse) completeIfDone(id);
  }
}

namespace {

bool isWritable(const AccessRange& range) { return range.isWritable; }
bool isWritable(const Inspector::Range& range) { return range.writable; }

template <typename Range>
bool fits(const Range& range, uint64_t address, uint32_t bytes, bool isWrite) {
  return address >= range.begin && address < range.end && range.end - address >= bytes &&
         (isWritable(range) || !isWrite);
}

/// The range among those kept that fits comes first from now on; otherwise the one that `look` finds, if it fits.
template <typename Range, typename F>
bool findIn(std::array<Range, kCachedRanges>& ranges, uint64_t address, uint32_t bytes, bool isWrite, F look) {
  for (size_t k = 0; k < ranges.size(); ++k) {
    if (!fits(ranges[k], address, bytes, isWrite)) continue;
    std::rotate(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(k),
                ranges.begin() + static_cast<std::ptrdiff_t>(k) + 1);
    return true;
  }
  const Range found = look();
  if (!fits(found, address, bytes, isWrite)) return false;
  std::rotate(ranges.begin(), ranges.end() - 1, ranges.end());
  ranges[0] = found;
  return true;
}

}  // namespace

AccessRange Block::parameterRange() const {
  const uint64_t parameters = reinterpret_cast<uint64_t>(grid_.parameters.data());
  return {parameters, parameters + grid_.parameters.size(), false};
}

bool Block::findRange(uint64_t address, uint32_t bytes, bool isWrite) {
  return findIn(ranges_, address, bytes, isWrite, [&]() -> AccessRange {
    const AccessRange parameters = parameterRange();
    if (address >= parameters.begin && address < parameters.end) return parameters;
    const MemoryMap::Range range = grid_.launch.memory->find(address);
    return {range.begin, range.end, range.writable};
  });
}

const Inspector::Range* Block::inspected(uint64_t address, uint32_t bytes, bool isWrite) {
  const bool isFound = findIn(inspectedRanges_, address, bytes, isWrite, [&]() -> Inspector::Range {
    const AccessRange parameters = parameterRange();
    if (address >= parameters.begin && address < parameters.end) return {parameters.begin, parameters.end, false};
    return grid_.launch.inspector->find(address);
  });
  return isFound ? &inspectedRanges_.front() : nullptr;
}

}  // namespace millpond::softgpu::ptx
