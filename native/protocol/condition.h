// SPDX-License-Identifier: Apache-2.0
// A condition variable as the standard one, which needs exceptions, and so newer C libraries than the client library may.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <mutex>

#include "protocol/futex.h"

namespace millpond {

class Condition {
 public:
  /// Waits until `isReady`, which is called with the lock held, at most `timeoutNs` (negative: without limit). Returns
  /// its result.
  template <typename IsReady>
  bool wait(std::unique_lock<std::mutex>& lock, IsReady&& isReady, int64_t timeoutNs = -1) {
    const int64_t end = timeoutNs < 0 ? 0 : monotonicNs() + timeoutNs;
    while (!isReady()) {
      const int64_t left = timeoutNs < 0 ? -1 : end - monotonicNs();
      if (timeoutNs >= 0 && left <= 0) return false;
      const uint32_t seen = changes_.load(std::memory_order_relaxed);
      lock.unlock();
      futexWait(changes_, seen, left);
      lock.lock();
    }
    return true;
  }
  /// Called with the lock held, after a change.
  void notifyAll() noexcept {
    changes_.fetch_add(1, std::memory_order_relaxed);
    futexWake(changes_, INT_MAX);
  }

 private:
  std::atomic<uint32_t> changes_{0};
};

}  // namespace millpond
