// SPDX-License-Identifier: Apache-2.0
// Host memory that an object of the session has, as counted for its claim: in one budget with pinned memory.
#pragma once

#include <cstdint>
#include <utility>

#include "worker/core/claim_counts.h"

namespace millpond::worker {

class HostCharge {
 public:
  HostCharge() = default;
  explicit HostCharge(ClaimCounts& counts) : counts_(&counts) {}
  HostCharge(HostCharge&& other) noexcept : counts_(other.counts_), bytes_(std::exchange(other.bytes_, 0)) {}
  HostCharge& operator=(HostCharge&& other) noexcept {
    if (this == &other) return *this;
    set(0);
    counts_ = other.counts_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~HostCharge() { set(0); }

  uint64_t bytes() const { return bytes_; }
  /// Returns false, and changes nothing, if the claim would exceed its limit.
  bool set(uint64_t bytes) {
    if (bytes > bytes_ && !counts_->take(Thing::kHostByte, bytes - bytes_)) return false;
    if (bytes < bytes_) counts_->give(Thing::kHostByte, bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }
  bool add(uint64_t bytes) { return bytes <= UINT64_MAX - bytes_ && set(bytes_ + bytes); }

 private:
  ClaimCounts* counts_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace millpond::worker
