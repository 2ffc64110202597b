// SPDX-License-Identifier: Apache-2.0
// The threads of a client that wait for replies. One of them reads for all; when it leaves, another takes its place.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "protocol/futex.h"

namespace millpond {

class Waiters {
 public:
  /// The destination of a waiting command's reply.
  struct Answer {
    std::span<std::byte> body;                ///< in: room; the reply's body is copied there as far as it fits
    size_t bodyBytes = 0;                     ///< out: length of the reply's body
    std::vector<std::byte>* whole = nullptr;  ///< if given, receives the whole body
    std::span<std::byte> data;                ///< destination of the bytes that a copy from the device sends
    size_t dataBytes = 0;                     ///< out: number of bytes received
  };

  class Waiter {
   public:
    explicit Waiter(Answer& to) : answer(to) {}
    bool isDone() const { return state_.load(std::memory_order_acquire) == kDone; }
    int32_t result() const { return result_; }
    /// Written by its own thread, or under the lock that `Waiters::finish` takes.
    void finish(int32_t code) {
      result_ = code;
      state_.store(kDone, std::memory_order_release);
    }

    Answer& answer;
    std::atomic<uint64_t> end{0};  ///< of the command in the stream: its reply confirms everything before

   private:
    friend class Waiters;
    static constexpr uint32_t kWaiting = 0, kDone = 1, kLead = 2;
    int32_t result_ = 0;
    std::atomic<uint32_t> state_{kWaiting};
    bool isAsleep_ = false;  // guarded by the common mutex
  };

  Waiters();
  /// The number of its reply. Waits while there are too many.
  uint32_t enter(Waiter& waiter);
  void leave(uint32_t request);

  /// Sleeps until the waiter is done or is asked to lead, unless `takeLead()` returns true; returns that result.
  template <typename TakeLead>
  bool sleep(Waiter& waiter, TakeLead&& takeLead) {
    lieDown(waiter);
    // The leading thread may have left before this waiter was known to sleep.
    const bool leads = takeLead();
    if (!leads) futexWait(waiter.state_, Waiter::kWaiting);
    getUp(waiter);
    return leads;
  }
  /// Asks a sleeping waiter to lead.
  void promoteOne();

  /// The waiter for that reply; nullptr if there is none. It stays valid until another thread finishes it.
  Waiter* find(uint32_t request);
  void finish(uint32_t request, int32_t result);
  void finishAll(int32_t result);

 private:
  void lieDown(Waiter& waiter);
  void getUp(Waiter& waiter);

  std::mutex mutex_;
  std::vector<Waiter*> waiters_;  // by their numbers, from 1
  std::vector<uint32_t> free_;
  uint32_t asleep_ = 0;  // number of waiters
};

}  // namespace millpond
