// SPDX-License-Identifier: Apache-2.0
// The accounted memory of graphs on a device. A card gives a graph its own addresses, one allocation after another, and
// maps memory there in granules when it is launched; the granules are kept for the next graph until they are trimmed.
// Here memory exists as long as its node: only the count is tracked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace millpond::softgpu {

/// The granules of one device. Called concurrently from many threads.
class GraphFootprint {
 public:
  static constexpr uint64_t kGranule = uint64_t{32} << 20;
  static GraphFootprint& of(unsigned device);

  /// Bytes of granules in use by graphs since the last trim, and their maximum since the mark was last reset.
  struct Bytes {
    uint64_t now = 0;
    uint64_t high = 0;
  };
  Bytes used() const;
  /// The same for granules that no graph has used yet.
  Bytes reserved() const;
  void resetUsedMark();
  void resetReservedMark();
  /// Releases memory that no graph uses.
  void trim();

  /// Granules for an allocation of `bytes`, including those that wait for earlier work of the queue.
  void take(uint64_t count, uint64_t bytes, const void* queue);
  void giveBack(uint64_t count);
  /// They serve later launches in the queue, and others once `leaveQueue` has been called as often as `enterQueue`.
  void giveBackBehind(const void* queue, uint64_t count);
  void enterQueue(const void* queue);
  void leaveQueue(const void* queue);

 private:
  struct Waiting {
    uint64_t launches = 0;
    uint64_t granules = 0;
  };
  uint64_t usedNow() const { return (held_ + waiting_ + idle_) * kGranule; }
  uint64_t reservedNow() const { return usedNow() + fresh_ * kGranule; }

  mutable std::mutex mutex_;
  uint64_t held_ = 0;     ///< of allocations
  uint64_t waiting_ = 0;  ///< in queues
  uint64_t idle_ = 0;
  uint64_t fresh_ = 0;  ///< idle, and never used by a graph
  uint64_t usedHigh_ = 0;
  uint64_t reservedHigh_ = 0;
  std::map<const void*, Waiting> queues_;
};

/// The addresses that a card would give the allocations of one graph, counted from 0. Guarded by graphMutex().
class GraphSpace {
 public:
  struct Place {
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };
  explicit GraphSpace(unsigned device) : device_(device) {}

  /// The first address range that overlaps none of `taken`.
  static Place find(uint64_t bytes, std::vector<Place> taken);

  /// A launch allocates.
  void hold(const Place& place, const void* queue);
  /// Makes allocated memory available again, immediately, or behind the work of a queue.
  void release(const Place& place);
  void releaseBehind(const Place& place, const void* queue);
  GraphFootprint& footprint() const { return GraphFootprint::of(device_); }

 private:
  uint64_t leave(const Place& place);

  const unsigned device_;
  std::map<uint64_t, unsigned> holders_;  ///< number of allocations in each used granule
};

}  // namespace millpond::softgpu
