// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __device__ int counter = 5;
static __global__ void count(int* out) { *out = ++counter; }

PROGRAM("device-reset", "the device reset: memory gone, variables as at first, the last error, work afterwards") {
  int* memory = nullptr;
  int value = 0;
  for (int round = 0; round < 3; ++round) {
    CHECK(cudaMalloc(&memory, sizeof(int)));
    count<<<1, 1>>>(memory);
    count<<<1, 1>>>(memory);
    CHECK(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
    say("counted: %d", value);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    SEE(cudaDeviceReset());
    SEE(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());
  SEE(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
  SEE(cudaGetLastError());
  SEE(cudaDeviceReset());
  SEE(cudaDeviceReset());
}
