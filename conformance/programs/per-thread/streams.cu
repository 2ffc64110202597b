// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <thread>

static __global__ void append(int* log, int* end, int value) { log[(*end)++] = value; }
static __global__ void set(int* out, int value) { *out = value; }

PROGRAM("streams", "the default stream of each thread: order within one, the legacy stream among them") {
  constexpr int kThreads = 4;
  conformance::Device<int> logs(kThreads * 32), ends(kThreads);
  ends.clear();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CHECK(cudaSetDevice(0));
      for (int i = 0; i < 20; ++i) append<<<1, 1>>>(logs + t * 32, ends + t, t * 100 + i);
      CHECK(cudaStreamSynchronize(nullptr));
      int last = -1;
      CHECK(cudaMemcpyAsync(&last, logs + t * 32 + 19, sizeof last, cudaMemcpyDeviceToHost));
      CHECK(cudaStreamSynchronize(cudaStreamPerThread));
      if (last != t * 100 + 19) say("thread %d saw %d", t, last);
    });
  }
  for (std::thread& thread : threads) thread.join();
  conformance::list("ends", ends.take());
  const std::vector<int> order = logs.take();
  for (int t = 0; t < kThreads; ++t)
    conformance::list("log", std::vector<int>(order.begin() + t * 32, order.begin() + t * 32 + 20));
  conformance::Device<int> value(1);
  set<<<1, 1>>>(value, 1);
  set<<<1, 1, 0, cudaStreamLegacy>>>(value, 2);
  set<<<1, 1>>>(value, 3);
  CHECK(cudaStreamSynchronize(nullptr));
  conformance::list("through the legacy stream", value.take());
  unsigned flags = 9;
  CHECK(cudaStreamGetFlags(nullptr, &flags));
  say("flags %u", flags);
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  set<<<1, 1>>>(value, 4);
  CHECK(cudaEventRecord(event));
  CHECK(cudaEventSynchronize(event));
  SEE(cudaEventQuery(event));
  SEE(cudaStreamQuery(nullptr));
  conformance::list("recorded", value.take());
  CHECK(cudaEventDestroy(event));
}
