// SPDX-License-Identifier: Apache-2.0
// Waits for devices on a thread of its own, so that a caller can give up.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace millpond::client {

class QuietWatch {
 public:
  /// Waits for the devices; if a capture forbids waiting for a whole context, for the given streams.
  using Settle = std::function<void(const std::vector<uint64_t>& streams)>;

  explicit QuietWatch(Settle settle) : settle_(std::move(settle)) {}
  /// Starts waiting for devices to finish their work so far. Returns the number of the request; none if the system has
  /// no thread left.
  std::optional<uint32_t> ask(std::vector<uint64_t> streams);
  /// Whether they have; waits for at most `timeoutNs`.
  bool isAnswered(uint32_t question, int64_t timeoutNs);

 private:
  [[noreturn]] void run();

  const Settle settle_;
  std::mutex mutex_;
  bool isStarted_ = false;
  std::vector<uint64_t> streams_;
  std::atomic<uint32_t> asked_{0};
  std::atomic<uint32_t> answered_{0};  ///< the last request, which includes all earlier ones
};

}  // namespace millpond::client
