// SPDX-License-Identifier: Apache-2.0
// The sum of an array: each thread adds up a stride of it, each warp adds its threads by shuffles, each block adds its
// warps through shared memory, and a second launch adds the blocks.
#include "example.h"

constexpr int kThreads = 256;
constexpr int kWarp = 32;

static __device__ long long sum_of_warp(long long value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, distance);
  }
  return value;
}

template <typename T>
__global__ void sum_blocks(const T* input, size_t n, long long* sums) {
  __shared__ long long warps[kThreads / kWarp];
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  long long sum = 0;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) sum += input[i];

  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  sum = sum_of_warp(sum);
  if (lane == 0) warps[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = sum_of_warp(lane < kThreads / kWarp ? warps[lane] : 0);
    if (lane == 0) sums[blockIdx.x] = sum;
  }
}

static bool run(const example::Arguments& arguments) {
  const size_t n = arguments.size(0, 1 << 20, 1 << 28);
  const unsigned blocks = 64;

  std::vector<int> input(n);
  long long expected = 0;
  unsigned state = 1;
  for (int& value : input) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<int>(state >> 8) - (1 << 23);
    expected += value;
  }

  int* device_input;
  long long *device_sums, *device_total;
  CHECK(cudaMalloc(&device_input, n * sizeof(int)));
  CHECK(cudaMalloc(&device_sums, blocks * sizeof(long long)));
  CHECK(cudaMalloc(&device_total, sizeof(long long)));
  CHECK(cudaMemcpy(device_input, input.data(), n * sizeof(int), cudaMemcpyHostToDevice));

  sum_blocks<<<blocks, kThreads>>>(device_input, n, device_sums);
  CHECK(cudaGetLastError());
  sum_blocks<<<1, kThreads>>>(device_sums, blocks, device_total);
  CHECK(cudaGetLastError());

  long long total = 0;
  CHECK(cudaMemcpy(&total, device_total, sizeof(total), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_input));
  CHECK(cudaFree(device_sums));
  CHECK(cudaFree(device_total));

  std::printf("reduction: %s (%zu elements, sum %lld)\n", total == expected ? "OK" : "WRONG", n, total);
  return total == expected;
}

EXAMPLE("reduction", "[ELEMENTS]", "sums an array by warp shuffles and shared memory", run);
