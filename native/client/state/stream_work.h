// SPDX-License-Identifier: Apache-2.0
// Counts the work that the program has given to streams, and how much of it is known to be done: a synchronous copy then need not ask.
#pragma once

#include <atomic>
#include <cstdint>

#include "protocol/gen/commands.h"

namespace millpond::client {

class StreamWork {
 public:
  /// Another command that may leave work in a stream. Called while it is appended, and therefore in the order of
  /// commands and for one command at a time.
  void give() noexcept { ++given_; }
  /// The number of such commands so far. Called in the same way.
  uint64_t given() const noexcept { return given_; }
  /// A wait for that many commands has ended, for everything that a default stream waits for.
  void end(uint64_t given) noexcept {
    uint64_t known = done_.load(std::memory_order_relaxed);
    while (known < given && !done_.compare_exchange_weak(known, given, std::memory_order_relaxed)) {
    }
  }
  /// Whether a copy in a default stream follows nothing that is still pending. Called like `give`.
  bool isDone() const noexcept {
    return done_.load(std::memory_order_relaxed) == given_ && !isShared_.load(std::memory_order_relaxed);
  }
  /// Other processes can see memory of the devices from now on: nothing but the worker's answer tells when they can.
  void share() noexcept { isShared_.store(true, std::memory_order_relaxed); }

 private:
  uint64_t given_ = 0;
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> isShared_{false};
};

/// Whether a command may leave work in the stream that it names.
template <typename C>
constexpr bool leavesWork() noexcept {
  switch (C::kOp) {
    case cmd::Op::kCopyFromDevice:
    case cmd::Op::kGreenStream:
    case cmd::Op::kStreamDestroyV2:
    case cmd::Op::kStreamGetAttribute:
    case cmd::Op::kStreamQuery:
    case cmd::Op::kStreamSetAttribute:
    case cmd::Op::kStreamSync: return false;
    default: return requires(C command) { command.stream;
      }
      || requires(C command) { command.hStream; };
  }
}

/// Whether its success means that everything is done for which the default streams of the context would wait.
template <typename C>
bool endsWork(const C& command) noexcept {
  if constexpr (C::kOp == cmd::Op::kContextSync) return true;
  if constexpr (C::kOp == cmd::Op::kStreamSync || C::kOp == cmd::Op::kCopyFromDevice) return command.stream == 0;
  return false;
}

}  // namespace millpond::client
