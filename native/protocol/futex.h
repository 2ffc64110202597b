// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>

namespace millpond {

/// Sleeps while `word` holds `expected`, at most `timeoutNs` (negative: without limit). Works across processes.
inline void futexWait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeoutNs = -1) {
  timespec timeout{timeoutNs / 1'000'000'000, timeoutNs % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, timeoutNs < 0 ? nullptr : &timeout, nullptr, 0);
}

inline void futexWake(std::atomic<uint32_t>& word, int count = 1) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

inline void cpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

inline int64_t monotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Waits by spinning first, so that a quick reply is noticed immediately. Spinning does harm if the other side waits
/// for this very core, which is detected by a fruitless spin and a reply right after this side slept. Then the next
/// waits sleep immediately, and only occasionally one tries to spin again.
class AdaptiveSpin {
 public:
  explicit AdaptiveSpin(int64_t maxNs = 50'000) : maxNs_(maxNs) {}

  /// Runs `ready` until it is true or spinning is useless; returns its last value. A caller that sleeps after false
  /// calls `slept` when it wakes.
  template <typename Ready>
  bool until(Ready&& ready) {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      cpuRelax();
    }
    endedNs_ = 0;
    if (skip_ > 0) {
      --skip_;
      return false;
    }
    int64_t now = monotonicNs();
    const int64_t end = now + maxNs_;
    do {
      for (int i = 0; i < 32; ++i) {
        if (ready()) {
          penalty_ = 0;
          return true;
        }
        cpuRelax();
      }
      now = monotonicNs();
    } while (now < end);
    endedNs_ = now;
    return false;
  }
  void slept() {
    if (endedNs_ == 0 || monotonicNs() - endedNs_ > kShortSleepNs) return;
    penalty_ = std::clamp(penalty_ * 2, 1, kMostSkipped);
    skip_ = penalty_;
  }

 private:
  static constexpr int64_t kShortSleepNs = 30'000;
  static constexpr int kMostSkipped = 64;

  int64_t maxNs_;
  int64_t endedNs_ = 0;  // of the last fruitless spin; 0: there was none in this wait
  int penalty_ = 0;
  int skip_ = 0;
};

}  // namespace millpond
