// SPDX-License-Identifier: Apache-2.0
// How much memory of one vGPU is taken, whatever kind it is of, and how much may be. One thread takes and gives, another
// may change the limit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace millpond::worker {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limitBytes) : limit_(limitBytes) {}

  /// False, and nothing taken, when that would be over the limit.
  bool take(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > limit_ - std::min(limit_, used_)) return false;
    used_ += bytes;
    return true;
  }
  void give(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }
  /// False, and nothing changed, when more than that is taken.
  bool setLimit(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes < used_) return false;
    limit_ = bytes;
    return true;
  }

  uint64_t limitBytes() const {
    const std::lock_guard lock(mutex_);
    return limit_;
  }
  uint64_t usedBytes() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  uint64_t left() const {
    const std::lock_guard lock(mutex_);
    return limit_ - std::min(limit_, used_);
  }

 private:
  mutable std::mutex mutex_;
  uint64_t limit_;
  uint64_t used_ = 0;
};

}  // namespace millpond::worker
