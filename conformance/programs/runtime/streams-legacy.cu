// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void append(int* log, int* end, int value) { log[(*end)++] = value; }

static __global__ void slow(unsigned long long cycles, int* out, int value) {
  const unsigned long long start = clock64();
  while (clock64() - start < cycles) {
  }
  *out = value;
}

PROGRAM("streams-legacy", "the legacy stream among others: order, flags, priorities, queries") {
  conformance::Device<int> log(64), end(1);
  end.clear();
  cudaStream_t blocking, free;
  CHECK(cudaStreamCreate(&blocking));
  CHECK(cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking));
  // The legacy stream waits for the blocking one, and the other way round.
  for (int round = 0; round < 8; ++round) {
    append<<<1, 1, 0, blocking>>>(log, end, round * 10);
    append<<<1, 1>>>(log, end, round * 10 + 1);
    append<<<1, 1, 0, cudaStreamLegacy>>>(log, end, round * 10 + 2);
  }
  CHECK(cudaDeviceSynchronize());
  const std::vector<int> order = log.take();
  conformance::list("order", std::vector<int>(order.begin(), order.begin() + 24));

  conformance::Device<int> flag(1);
  flag.clear();
  slow<<<1, 1, 0, free>>>(200000, flag, 1);
  say("a query of a busy or finished stream is one of two: %s", [&] {
    const cudaError_t status = cudaStreamQuery(free);
    return status == cudaSuccess || status == cudaErrorNotReady ? "yes" : "no";
  }());
  CHECK(cudaStreamSynchronize(free));
  SEE(cudaStreamQuery(free));
  say("flag %d", flag.take()[0]);

  unsigned flags = 9;
  CHECK(cudaStreamGetFlags(blocking, &flags));
  say("flags of the blocking stream: %u", flags);
  CHECK(cudaStreamGetFlags(free, &flags));
  say("flags of the other: %u", flags);
  CHECK(cudaStreamGetFlags(nullptr, &flags));
  say("flags of the legacy stream: %u", flags);
  int low = 0, high = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
  say("priorities: lowest %d, highest below: %s", low, high < low ? "yes" : "no");
  for (const int wanted : {0, -1, -100, 7}) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, wanted));
    int priority = 99;
    CHECK(cudaStreamGetPriority(stream, &priority));
    say("priority %d asked, clamped: %s", wanted, priority >= high && priority <= low ? "yes" : "no");
    CHECK(cudaStreamDestroy(stream));
  }
  unsigned long long a = 0, b = 0;
  CHECK(cudaStreamGetId(blocking, &a));
  CHECK(cudaStreamGetId(free, &b));
  say("ids differ: %s", a != b ? "yes" : "no");
  CHECK(cudaStreamDestroy(blocking));
  CHECK(cudaStreamDestroy(free));
  cudaStream_t none;
  SEE(cudaStreamCreateWithFlags(&none, 77));
}
