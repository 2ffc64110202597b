// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "conformance.h"

static __global__ void add(int* cell, int value) { atomicAdd(cell, value); }
static __global__ void append(int* log, int value) { log[1 + log[0]++] = value; }

PROGRAM("threads", "500 threads that use the device, many on one stream, and the order that each sees") {
  conformance::Device<int> total(1);
  total.clear();
  std::vector<std::thread> threads;
  std::vector<int> seen(500);
  for (int t = 0; t < 500; ++t) {
    threads.emplace_back([&, t] {
      int* own = nullptr;
      CHECK(cudaMalloc(&own, sizeof(int)));
      CHECK(cudaMemset(own, 0, sizeof(int)));
      add<<<1, 32>>>(own, t);
      add<<<1, 1>>>(total, t);
      CHECK(cudaMemcpy(&seen[static_cast<size_t>(t)], own, sizeof(int), cudaMemcpyDeviceToHost));
      CHECK(cudaFree(own));
    });
  }
  for (std::thread& thread : threads) thread.join();
  int wrong = 0;
  for (int t = 0; t < 500; ++t) wrong += seen[static_cast<size_t>(t)] != 32 * t;
  say("%d threads saw another result, total %d", wrong, total.take()[0]);
  // Work of one thread in a shared stream stays in order.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  conformance::Device<int> log(1 + 16 * 50);
  log.clear();
  threads.clear();
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        append<<<1, 1, 0, stream>>>(log, t * 100 + i);
        if (i % 10 == 5) CHECK(cudaStreamSynchronize(stream));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<int> order = log.take();
  std::vector<int> next(16);
  int outOfOrder = 0;
  for (int i = 1; i <= order[0]; ++i) {
    const int value = order[static_cast<size_t>(i)];
    outOfOrder += next[static_cast<size_t>(value / 100)]++ != value % 100;
  }
  say("%d entries, %d out of order", order[0], outOfOrder);
  // Each thread has its own last error.
  cudaFree(reinterpret_cast<void*>(0x1234));
  cudaError_t other = cudaErrorUnknown;
  std::thread([&] { other = cudaPeekAtLastError(); }).join();
  say("another thread's last error: %s, this one's: %s", cudaGetErrorName(other), cudaGetErrorName(cudaGetLastError()));
  CHECK(cudaStreamDestroy(stream));
}
