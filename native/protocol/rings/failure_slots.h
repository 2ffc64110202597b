// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "protocol/wire.h"

namespace millpond {

/// Failures of commands for which no thread waited, the first of each context, until the client takes them. They are in
/// memory that both sides may share. Only the worker adds failures.
class FailureSlots {
 public:
  /// False: a failure of that context is already stored, or there is no room.
  bool keep(int32_t code, uint16_t context) {
    for (const auto& each : kept_)
      if (const int32_t other = each.load(std::memory_order_relaxed);
          other != 0 && wire::failureContext(other) == context)
        return false;
    for (auto& each : kept_) {
      int32_t none = 0;
      if (!each.compare_exchange_strong(none, wire::packFailure(code, context), std::memory_order_release)) continue;
      isAny_.store(1, std::memory_order_release);
      return true;
    }
    return false;
  }
  /// One of them, packed; 0: there is none. Costs one read if there is none.
  int32_t first() const {
    if (isAny_.load(std::memory_order_acquire) == 0) [[likely]]
      return 0;
    for (const auto& each : kept_)
      if (const int32_t failure = each.load(std::memory_order_relaxed)) return failure;
    return 0;
  }
  /// The same, and removes it.
  int32_t take() {
    // A later failure sets it again.
    if (isAny_.exchange(0, std::memory_order_acq_rel) == 0) return 0;
    for (auto& each : kept_)
      if (const int32_t failure = each.exchange(0, std::memory_order_acquire)) {
        isAny_.store(1, std::memory_order_release);
        return failure;
      }
    return 0;
  }

 private:
  /// Contexts with unreported failures beyond this number lose theirs.
  static constexpr size_t kMost = 15;

  std::atomic<int32_t> isAny_{0};
  std::array<std::atomic<int32_t>, kMost> kept_{};
};

}  // namespace millpond
