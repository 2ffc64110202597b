// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/graphs/graph_footprint.h"

#include <algorithm>

namespace millpond::softgpu {
namespace {

constexpr uint64_t kPlaceAlignment = 512;

uint64_t granulesOf(uint64_t bytes) { return (bytes + GraphFootprint::kGranule - 1) / GraphFootprint::kGranule; }

}  // namespace

GraphFootprint& GraphFootprint::of(unsigned device) {
  static auto& mutex = *std::make_unique<std::mutex>().release();
  std::lock_guard lock(mutex);
  static auto& all = *std::make_unique<std::map<unsigned, GraphFootprint>>().release();
  return all[device];
}

GraphFootprint::Bytes GraphFootprint::used() const {
  std::lock_guard lock(mutex_);
  return {usedNow(), usedHigh_};
}

GraphFootprint::Bytes GraphFootprint::reserved() const {
  std::lock_guard lock(mutex_);
  return {reservedNow(), reservedHigh_};
}

void GraphFootprint::resetUsedMark() {
  std::lock_guard lock(mutex_);
  usedHigh_ = usedNow();
}

void GraphFootprint::resetReservedMark() {
  std::lock_guard lock(mutex_);
  reservedHigh_ = reservedNow();
}

void GraphFootprint::trim() {
  std::lock_guard lock(mutex_);
  idle_ = fresh_ = 0;
}

void GraphFootprint::enterQueue(const void* queue) {
  std::lock_guard lock(mutex_);
  ++queues_[queue].launches;
}

void GraphFootprint::take(uint64_t count, uint64_t bytes, const void* queue) {
  if (count == 0) return;
  std::lock_guard lock(mutex_);
  uint64_t missing = count;
  const auto use = [&](uint64_t& from) {
    const uint64_t taken = std::min(missing, from);
    from -= taken;
    missing -= taken;
    return taken;
  };
  if (const auto found = queues_.find(queue); found != queues_.end()) waiting_ -= use(found->second.granules);
  use(idle_);
  // A card reserves memory for the whole allocation, even if it could reuse memory that it already has there.
  if (missing > fresh_) fresh_ = std::max(missing, std::max(granulesOf(bytes), count) - (count - missing));
  use(fresh_);
  held_ += count;
  usedHigh_ = std::max(usedHigh_, usedNow());
  reservedHigh_ = std::max(reservedHigh_, reservedNow());
}

void GraphFootprint::giveBack(uint64_t count) {
  std::lock_guard lock(mutex_);
  held_ -= count;
  idle_ += count;
}

void GraphFootprint::giveBackBehind(const void* queue, uint64_t count) {
  std::lock_guard lock(mutex_);
  held_ -= count;
  waiting_ += count;
  queues_[queue].granules += count;
}

void GraphFootprint::leaveQueue(const void* queue) {
  std::lock_guard lock(mutex_);
  const auto found = queues_.find(queue);
  if (found == queues_.end() || --found->second.launches > 0) return;
  waiting_ -= found->second.granules;
  idle_ += found->second.granules;
  queues_.erase(found);
}

GraphSpace::Place GraphSpace::find(uint64_t bytes, std::vector<Place> taken) {
  std::sort(taken.begin(), taken.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  uint64_t begin = 0;
  for (const Place& each : taken) {
    if (each.begin >= begin && each.begin - begin >= bytes) break;
    begin = std::max(begin, (each.begin + each.bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment);
  }
  return {begin, bytes};
}

void GraphSpace::hold(const Place& place, const void* queue) {
  uint64_t missing = 0;
  for (uint64_t g = place.begin / GraphFootprint::kGranule; g * GraphFootprint::kGranule < place.begin + place.bytes;
       ++g)
    if (holders_[g]++ == 0) ++missing;
  footprint().take(missing, place.bytes, queue);
}

uint64_t GraphSpace::leave(const Place& place) {
  uint64_t left = 0;
  for (uint64_t g = place.begin / GraphFootprint::kGranule; g * GraphFootprint::kGranule < place.begin + place.bytes;
       ++g) {
    const auto found = holders_.find(g);
    if (found == holders_.end() || --found->second > 0) continue;
    holders_.erase(found);
    ++left;
  }
  return left;
}

void GraphSpace::release(const Place& place) { footprint().giveBack(leave(place)); }

void GraphSpace::releaseBehind(const Place& place, const void* queue) {
  footprint().giveBackBehind(queue, leave(place));
}

}  // namespace millpond::softgpu
