// SPDX-License-Identifier: Apache-2.0
// Disorder that CUDA allows and a card has, but software GPUs do not: what may run in any order does, and begins late.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>

namespace millpond::softgpu {

/// A source of random delays and positions from a seed. The result also depends on the timing of threads.
class Chaos {
 public:
  explicit Chaos(uint64_t seed) : random_(seed) {}

  /// How long the next operation waits before it begins: half of them not at all, one in ten up to 3 ms.
  std::chrono::microseconds delay();
  /// A position for another operation among `count` ready ones, or after them.
  size_t place(size_t count);

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
};

}  // namespace millpond::softgpu
