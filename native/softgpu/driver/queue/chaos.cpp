// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/queue/chaos.h"

namespace millpond::softgpu {

std::chrono::microseconds Chaos::delay() {
  const std::lock_guard lock(mutex_);
  const uint64_t kind = random_() % 10;
  if (kind < 5) return std::chrono::microseconds(0);
  return std::chrono::microseconds(random_() % (kind < 9 ? 200 : 3000));
}

size_t Chaos::place(size_t count) {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(random_() % (count + 1));
}

}  // namespace millpond::softgpu
