// SPDX-License-Identifier: Apache-2.0
#include "client/session/queue_bound.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "client/process/host_functions.h"
#include "client/state/capture_state.h"

namespace millpond::client {
namespace {

/// Measured on an H200: behind a pending function the 1,022nd launch, copy, fill, graph or wait for a word of a stream
/// blocks, and so do a launch after 3 MB of parameters and a small copy from pageable memory after 4 MB.
constexpr size_t kPlaces = 960;
constexpr size_t kMostBytes = size_t{2} << 20;
/// Number of channels among which streams are distributed evenly; each has the capacity measured above.
constexpr size_t kChannels = 8;
/// Longer parameters are not stored in the queue itself.
constexpr size_t kLongestInQueue = size_t{20} << 10;

}  // namespace

bool QueueBound::hasPlace(const Key& key, const Lane& lane) const {
  if (lane.count >= kPlaces) return false;
  if (lanes_.size() <= kChannels) return true;
  // Including the fullest of the other streams that could share its channel.
  std::vector<size_t> others;
  for (const auto& [each, other] : lanes_)
    if (each != key) others.push_back(other.count);
  std::sort(others.begin(), others.end(), std::greater<>());
  const size_t sharing = (lanes_.size() + kChannels - 1) / kChannels - 1;
  return std::accumulate(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(sharing), lane.count) < kPlaces;
}

bool QueueBound::take(const Key& key, size_t bytes) {
  if (const uint64_t now = HostFunctions::epoch(); now != epoch_) {
    // All host functions have returned, so earlier work of the streams is no longer held up by them.
    epoch_ = now;
    if (!hasWords()) {
      lanes_.clear();
      ++generation_;
    }
  }
  Lane& lane = lanes_.try_emplace(key, Lane{.drains = drains_}).first->second;
  // An empty stream always accepts work: another one must not block it.
  if (lane.count != 0 && (lane.bytes + bytes > kMostBytes || !hasPlace(key, lane))) return false;
  ++lane.count;
  lane.bytes += bytes;
  return true;
}

void QueueBound::emptied(const Key& key, const Lane& before, uint64_t generation) {
  const auto found = lanes_.find(key);
  // Another thread may have waited for the same.
  if (generation != generation_ || found == lanes_.end() || found->second.drains != before.drains) return;
  Lane& lane = found->second;
  lane.count -= before.count;
  lane.bytes -= before.bytes;
  lane.drains = ++drains_;
  if (lane.count == 0) lanes_.erase(found);
  if (lanes_.empty()) hasWords_.store(false, std::memory_order_relaxed);
}

CUresult QueueBound::lookAtOthers(const CommandSink& call, const Key& own) {
  std::vector<std::pair<Key, Lane>> others;
  uint64_t generation = 0;
  {
    const std::lock_guard lock(mutex_);
    generation = generation_;
    for (const auto& [key, lane] : lanes_)
      if (key != own && key.first == own.first && lane.count != 0) others.emplace_back(key, lane);
  }
  for (const auto& [key, lane] : others) {
    // A destroyed stream counts as empty: its handle can receive no more work.
    const bool hasEnded = key.second != 0 && handles_.find(key.second) == nullptr;
    cmd::StreamQuery query{};
    query.hStream = key.second;
    cmd::StreamQueryReply reply{};
    const CUresult state = hasEnded ? CUDA_SUCCESS : call.wait(query, reply);
    if (state == CUDA_ERROR_NOT_READY) continue;
    if (state != CUDA_SUCCESS) return state;
    const std::lock_guard lock(mutex_);
    emptied(key, lane, generation);
  }
  return CUDA_SUCCESS;
}

CUresult QueueBound::admit(const CommandSink& call, uint64_t stream, size_t bytes) noexcept {
  // Captured work is not queued, and streams must not be queried during a capture.
  if (CaptureState::anyOpen()) return CUDA_SUCCESS;
  const Key key{call.streamContext(stream), stream};
  const size_t inQueue = bytes > kLongestInQueue ? 0 : bytes;
  for (bool hasLooked = false;;) {
    Lane before;
    uint64_t generation = 0;
    {
      const std::lock_guard lock(mutex_);
      if (take(key, inQueue)) return CUDA_SUCCESS;
      before = lanes_[key];
      generation = generation_;
    }
    if (before.count < kPlaces && before.bytes + inQueue <= kMostBytes && !hasLooked) {
      if (const CUresult r = lookAtOthers(call, key); r != CUDA_SUCCESS) return r;
      hasLooked = true;
      continue;
    }
    cmd::StreamSync sync{};
    sync.stream = stream;
    cmd::StreamSyncReply reply{};
    if (const CUresult r = call.wait(sync, reply); r != CUDA_SUCCESS) return r;
    {
      const std::lock_guard lock(mutex_);
      emptied(key, before, generation);
    }
    if (hasWords())
      if (const CUresult r = lookAtOthers(call, key); r != CUDA_SUCCESS) return r;
  }
}

}  // namespace millpond::client
