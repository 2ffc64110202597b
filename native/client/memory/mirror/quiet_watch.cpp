// SPDX-License-Identifier: Apache-2.0
#include "client/memory/mirror/quiet_watch.h"

#include <sys/prctl.h>

#include <utility>

#include "client/addresses/helper_thread.h"
#include "protocol/futex.h"

namespace millpond::client {

std::optional<uint32_t> QuietWatch::ask(std::vector<uint64_t> streams) {
  const std::lock_guard lock(mutex_);
  if (!isStarted_)
    isStarted_ = startHelperThread(
        [](void* self) -> void* {
          ::prctl(PR_SET_NAME, "millpond-quiet");
          static_cast<QuietWatch*>(self)->run();
        },
        this);
  if (!isStarted_) return std::nullopt;
  streams_ = std::move(streams);
  const uint32_t question = asked_.fetch_add(1, std::memory_order_release) + 1;
  futexWake(asked_);
  return question;
}

bool QuietWatch::isAnswered(uint32_t question, int64_t timeoutNs) {
  const int64_t end = monotonicNs() + timeoutNs;
  for (;;) {
    const uint32_t answered = answered_.load(std::memory_order_acquire);
    if (static_cast<int32_t>(answered - question) >= 0) return true;
    const int64_t left = end - monotonicNs();
    if (left <= 0) return false;
    futexWait(answered_, answered, left);
  }
}

void QuietWatch::run() {
  for (uint32_t answered = 0;;) {
    std::vector<uint64_t> streams;
    uint32_t question = 0;
    {
      const std::lock_guard lock(mutex_);
      question = asked_.load(std::memory_order_relaxed);
      streams = streams_;
    }
    if (question == answered) {
      futexWait(asked_, question);
      continue;
    }
    settle_(streams);
    answered = question;
    answered_.store(answered, std::memory_order_release);
    futexWake(answered_, INT32_MAX);
  }
}

}  // namespace millpond::client
