// SPDX-License-Identifier: Apache-2.0
// How many functions the program has given to streams and graphs, and how many of them have not returned.
#pragma once

#include <atomic>
#include <cstdint>

namespace millpond::client {

class HostFunctions {
 public:
  /// Whether functions of any device are still pending. Costs one read: every launch checks it.
  static bool anyPending() noexcept { return pending_.load(std::memory_order_relaxed) != 0; }
  /// A number that changes whenever functions become pending after there were none.
  static uint64_t epoch() noexcept { return epoch_.load(std::memory_order_acquire); }
  /// The number of functions that the program has given so far, on all devices.
  static uint64_t given() noexcept { return given_.load(std::memory_order_acquire); }
  /// Whether the calling thread is running one now, during which it may not call the driver.
  static bool running() noexcept { return running_; }

 private:
  friend class CallbackThread;
  friend struct CallbackLoop;
  static inline std::atomic<uint32_t> pending_{0};
  static inline std::atomic<uint64_t> epoch_{0};
  static inline std::atomic<uint64_t> given_{0};
  // Like Context::top_: read by every call.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit bool running_ = false;
};

}  // namespace millpond::client
