// SPDX-License-Identifier: Apache-2.0
// The threads that run the program's functions when a stream reaches them: one for each device, started at its first
// use, so that the functions of a device's contexts run one after another.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/gen/cuda_api.h"

namespace millpond {
class Session;
}

namespace millpond::client {

class CallbackThread {
 public:
  /// Makes the thread of that context's device wait for `count` more callbacks. Before the command that brings them about.
  /// CUDA_ERROR_OUT_OF_MEMORY when there can be no thread.
  static CUresult expect(Session& session, uint16_t context, uint32_t count) noexcept;
  /// Whether callbacks of any device are to be run still. Costs one read: every launch asks.
  static bool anyBusy() noexcept { return pending_.load(std::memory_order_relaxed) != 0; }
  /// Another one whenever there are callbacks to be run after there were none.
  static uint64_t epoch() noexcept { return epoch_.load(std::memory_order_acquire); }
  /// How many callbacks the program has given so far, of all devices.
  static uint64_t given() noexcept { return given_.load(std::memory_order_acquire); }
  /// Whether callbacks of that context's device are to be run still.
  static bool busy(uint16_t context) noexcept;
  /// Whether the calling thread is running one now: it may not call the driver.
  static bool running() noexcept { return running_; }

 private:
  friend struct CallbackLoop;
  static inline std::atomic<uint32_t> pending_{0};
  static inline std::atomic<uint64_t> epoch_{0};
  static inline std::atomic<uint64_t> given_{0};
  // As Context::top_: read by every call.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit bool running_ = false;
};

}  // namespace millpond::client
