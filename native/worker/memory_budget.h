// SPDX-License-Identifier: Apache-2.0
// How much memory of one vGPU is taken, whatever kind it is of, and how much may be.
#pragma once

#include <algorithm>
#include <cstdint>

namespace millpond::worker {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limitBytes) : limit_(limitBytes) {}

  /// False, and nothing taken, when that would be over the limit.
  bool take(uint64_t bytes) {
    if (bytes > left()) return false;
    used_ += bytes;
    return true;
  }
  void give(uint64_t bytes) { used_ -= bytes; }

  uint64_t limitBytes() const { return limit_; }
  uint64_t usedBytes() const { return used_; }
  uint64_t left() const { return limit_ - std::min(limit_, used_); }

 private:
  uint64_t limit_;
  uint64_t used_ = 0;
};

}  // namespace millpond::worker
