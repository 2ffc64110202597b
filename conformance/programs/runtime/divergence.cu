// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void collatz(const unsigned* in, unsigned* steps, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long x = in[i];
  unsigned count = 0;
  while (x != 1) {
    if (x % 2 == 0) x /= 2;
    else x = 3 * x + 1;
    ++count;
  }
  steps[i] = count;
}

static __global__ void cases(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  int value = 0;
  switch (i % 7) {
    case 0: value = i; break;
    case 1: for (int j = 0; j < i; ++j) value += j; break;
    case 2: value = -i; [[fallthrough]];
    case 3: value += 1000; break;
    case 4: if (i > 50) return; value = 4; break;
    case 5: do { value += 3; } while (value < i); break;
    default: value = 7 * i;
  }
  out[i] = value;
}

// Threads of one warp that wait for each other need independent thread scheduling.
static __global__ void handover(volatile int* turn, int* order) {
  const int lane = static_cast<int>(threadIdx.x);
  const int mine = (lane * 7) % 32;
  while (*turn != mine) {
  }
  order[mine] = lane;
  __threadfence();
  *turn = mine + 1;
}

static __global__ void spinlock(int* lock, int* counter) {
  for (bool isDone = false; !isDone;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *reinterpret_cast<volatile int*>(counter) = *reinterpret_cast<volatile int*>(counter) + 1;
      __threadfence();
      atomicExch(lock, 0);
      isDone = true;
    }
  }
}

PROGRAM("divergence", "loops and branches that part a warp, and threads of a warp that wait for each other") {
  std::vector<unsigned> numbers(2000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<unsigned>(i * 37 + 1);
  conformance::Device<unsigned> in(numbers), steps(numbers.size());
  collatz<<<16, 128>>>(in, steps, 2000);
  const std::vector<unsigned> found = steps.take();
  unsigned long long total = 0;
  for (unsigned count : found) total += count;
  say("collatz: %llu steps, of the last %u", total, found.back());
  conformance::Device<int> out(std::vector<int>(96, -1));
  cases<<<1, 96>>>(out);
  conformance::list("cases", out.take());
  conformance::Device<int> turn(1), order(32);
  turn.clear();
  handover<<<1, 32>>>(turn, order);
  conformance::list("order", order.take());
  conformance::Device<int> lock(1), counter(1);
  lock.clear(), counter.clear();
  spinlock<<<4, 64>>>(lock, counter);
  conformance::list("counted under a lock", counter.take());
}
