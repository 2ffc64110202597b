// SPDX-License-Identifier: Apache-2.0
#include "worker/core/budgets.h"

namespace millpond::worker {

void Budgets::publish(size_t device) {
  session_.counters().memoryUsed[device].store(all_[device].ownBytes(), std::memory_order_relaxed);
}

void Budgets::publish() {
  for (size_t device = 0; device < all_.size(); ++device) publish(device);
}

}  // namespace millpond::worker
