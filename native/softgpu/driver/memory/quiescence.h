// SPDX-License-Identifier: Apache-2.0
// Keeps memory mapped for as long as running work may touch it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

namespace millpond::softgpu {

/// Work that accesses memory holds a Use while it runs. Code that removes memory first removes it from the address
/// space, so that no later work finds it, and then waits here for work that may have found it before.
class Quiescence {
 public:
  class Use {
   public:
    explicit Use(Quiescence& quiescence) : quiescence_(quiescence), number_(quiescence.begin()) {}
    ~Use() { quiescence_.end(number_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Quiescence& quiescence_;
    const uint64_t number_;
  };

  /// Returns when all uses that began before have ended.
  void wait() {
    std::unique_lock lock(mutex_);
    const uint64_t last = last_;
    ended_.wait(lock, [&] { return running_.empty() || *running_.begin() > last; });
  }

 private:
  uint64_t begin() {
    std::lock_guard lock(mutex_);
    running_.insert(++last_);
    return last_;
  }
  void end(uint64_t number) {
    {
      std::lock_guard lock(mutex_);
      running_.erase(number);
    }
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::set<uint64_t> running_;
  uint64_t last_ = 0;
};

}  // namespace millpond::softgpu
