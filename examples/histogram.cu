// SPDX-License-Identifier: Apache-2.0
// How often each byte value occurs: every block counts into shared memory with atomics, then adds its counts to the
// result in global memory.
#include "example.h"

#include <algorithm>

constexpr int kBins = 256;
constexpr int kThreads = 256;

__global__ void count(const unsigned char* data, size_t n, unsigned* bins) {
  __shared__ unsigned local[kBins];
  for (unsigned bin = threadIdx.x; bin < kBins; bin += blockDim.x) local[bin] = 0;
  __syncthreads();

  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    atomicAdd(&local[data[i]], 1u);
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    if (local[bin] != 0) atomicAdd(&bins[bin], local[bin]);
  }
}

static bool run(const example::Arguments& arguments) {
  const size_t n = arguments.size(0, 1 << 20, 1 << 30);

  // The sum of two even distributions, so that the counts differ from bin to bin.
  std::vector<unsigned char> data(n);
  unsigned state = 1;
  for (unsigned char& value : data) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<unsigned char>(((state >> 25) & 0x7f) + ((state >> 18) & 0x7f));
  }
  std::vector<unsigned> expected(kBins, 0), bins(kBins, 0);
  for (unsigned char value : data) ++expected[value];

  unsigned char* device_data;
  unsigned* device_bins;
  CHECK(cudaMalloc(&device_data, n));
  CHECK(cudaMalloc(&device_bins, kBins * sizeof(unsigned)));
  CHECK(cudaMemcpy(device_data, data.data(), n, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(device_bins, 0, kBins * sizeof(unsigned)));
  count<<<32, kThreads>>>(device_data, n, device_bins);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(bins.data(), device_bins, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_data));
  CHECK(cudaFree(device_bins));

  const bool right = bins == expected;
  const auto fullest = std::max_element(bins.begin(), bins.end());
  std::printf("histogram: %s (%zu bytes, fullest bin %td holds %u)\n", right ? "OK" : "WRONG", n,
              fullest - bins.begin(), *fullest);
  return right;
}

EXAMPLE("histogram", "[BYTES]", "counts byte values with shared and global atomics", run);
