// SPDX-License-Identifier: Apache-2.0
#include "protocol/client/waiters.h"

#include <sched.h>

namespace millpond {
namespace {

constexpr uint32_t kMaxWaiters = 4096;

}  // namespace

Waiters::Waiters() : waiters_(kMaxWaiters) {
  for (uint32_t slot = kMaxWaiters; slot-- > 0;) free_.push_back(slot);
}

uint32_t Waiters::enter(Waiter& waiter) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        const uint32_t slot = free_.back();
        free_.pop_back();
        waiters_[slot] = &waiter;
        return slot + 1;
      }
    }
    ::sched_yield();
  }
}

void Waiters::leave(uint32_t request) {
  std::lock_guard lock(mutex_);
  waiters_[request - 1] = nullptr;
  free_.push_back(request - 1);
}

void Waiters::lieDown(Waiter& waiter) {
  std::lock_guard lock(mutex_);
  waiter.isAsleep_ = true;
  ++asleep_;
}

void Waiters::getUp(Waiter& waiter) {
  std::lock_guard lock(mutex_);
  waiter.isAsleep_ = false;
  --asleep_;
  uint32_t asked = Waiter::kLead;
  waiter.state_.compare_exchange_strong(asked, Waiter::kWaiting);
}

void Waiters::promoteOne() {
  std::lock_guard lock(mutex_);
  if (asleep_ == 0) return;
  for (Waiter* each : waiters_) {
    if (!each || !each->isAsleep_) continue;
    uint32_t waiting = Waiter::kWaiting;
    if (each->state_.compare_exchange_strong(waiting, Waiter::kLead)) {
      futexWake(each->state_);
      return;
    }
  }
}

Waiters::Waiter* Waiters::find(uint32_t request) {
  std::lock_guard lock(mutex_);
  Waiter* found = request >= 1 && request <= kMaxWaiters ? waiters_[request - 1] : nullptr;
  return found && !found->isDone() ? found : nullptr;
}

void Waiters::finish(uint32_t request, int32_t result) {
  // Under the lock: the waiter's stack frame lives until it has returned, and returning takes the lock.
  std::lock_guard lock(mutex_);
  if (Waiter* found = waiters_[request - 1]) {
    found->finish(result);
    if (found->isAsleep_) futexWake(found->state_);
  }
}

void Waiters::finishAll(int32_t result) {
  std::lock_guard lock(mutex_);
  for (Waiter* each : waiters_) {
    if (!each || each->isDone()) continue;
    each->finish(result);
    futexWake(each->state_);
  }
}

}  // namespace millpond
