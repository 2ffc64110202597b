// SPDX-License-Identifier: Apache-2.0
// The places in a stream's queue: as on a card, a call that gives it more work than it has places for waits.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace millpond::softgpu {

class QueuePlaces {
 public:
  /// Takes a place; waits until one of `depth` places is free.
  void enter(size_t depth) {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return taken_ < depth; });
    ++taken_;
  }
  /// The work that took a place is done.
  void leave() {
    const std::lock_guard lock(mutex_);
    --taken_;
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  size_t taken_ = 0;
};

}  // namespace millpond::softgpu
