// SPDX-License-Identifier: Apache-2.0
// Acts like a notebook: computes, frees its memory, pauses, and continues with its remaining objects. Run in a lazy claim with
// a short --lazy-idle, and CONFORMANCE_IDLE_SECONDS above that, its session is parked during the pause.
#include <cassert>

#include "conformance.h"

__device__ int untouched;
static __device__ const int kTable[4] = {2, 3, 5, 7};
__constant__ int factor = 3;

static __global__ void scale(int* data, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  assert(data[i] >= 0);
  data[i] = data[i] * factor + kTable[i % 4] + untouched;
  if (i == 1000) printf("element %d is %d\n", i, data[i]);
}

static __global__ void large(int* data) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  data[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

static void think() {
  const char* seconds = std::getenv("CONFORMANCE_IDLE_SECONDS");
  if (seconds) ::sleep(static_cast<unsigned>(std::atoi(seconds)));
}

PROGRAM("idle", "idle programs: streams, events, modules and settings are what they were before") {
  constexpr int kCount = 1 << 16;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, 40 << 10));
  float before = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<int> values(kCount, round + 1);
    int* data = nullptr;
    CHECK(cudaMalloc(&data, kCount * sizeof(int)));
    CHECK(cudaMemcpyAsync(data, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(begin, stream));
    scale<<<kCount / 256, 256, 0, stream>>>(data, kCount);
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaMemcpy(values.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    long sum = 0;
    for (const int value : values) sum += value;
    say("round %d: the sum is %ld", round, sum);
    large<<<1, 256, 40 << 10, stream>>>(data);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(values.data(), data, 256 * sizeof(int), cudaMemcpyDeviceToHost));
    say("round %d: the last is first: %d", round, values[0]);
    CHECK(cudaFree(data));
    CHECK(cudaEventElapsedTime(&before, begin, end));
    think();
    float after = 0;
    CHECK(cudaEventElapsedTime(&after, begin, end));
    say("round %d: the kernel took what it took: %s", round, before > 0 && after == before ? "yes" : "no");
    SEE(cudaEventQuery(end));
    SEE(cudaStreamQuery(stream));
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, large));
    say("round %d: shared memory of %d KiB", round, attributes.maxDynamicSharedSizeBytes >> 10);
  }
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  CHECK(cudaStreamDestroy(stream));
}
