// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "conformance.h"

static __global__ void bitonic(unsigned* data, unsigned j, unsigned k) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;
  if (other <= i) return;
  const unsigned a = data[i], b = data[other];
  if ((i & k) == 0 ? a > b : a < b) data[i] = b, data[other] = a;
}

// A radix sort in one block: counts, scans and scatters by four bits at a time.
static __global__ void radix(const unsigned* in, unsigned* out, unsigned n, unsigned shift) {
  __shared__ unsigned counts[16], starts[16];
  if (threadIdx.x < 16) counts[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&counts[in[i] >> shift & 15], 1u);
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned sum = 0;
    for (int i = 0; i < 16; ++i) starts[i] = sum, sum += counts[i];
    for (unsigned i = 0; i < n; ++i) out[starts[in[i] >> shift & 15]++] = in[i];
  }
}

static __global__ void prefix(const unsigned* in, unsigned long long* out, unsigned n) {
  __shared__ unsigned long long box[1024];
  unsigned long long carry = 0;
  for (unsigned base = 0; base < n; base += 1024) {
    const unsigned i = base + threadIdx.x;
    unsigned long long value = i < n ? in[i] : 0;
    box[threadIdx.x] = value;
    __syncthreads();
    for (unsigned step = 1; step < 1024; step *= 2) {
      const unsigned long long add = threadIdx.x >= step ? box[threadIdx.x - step] : 0;
      __syncthreads();
      box[threadIdx.x] += add;
      __syncthreads();
    }
    if (i < n) out[i] = box[threadIdx.x] + carry;
    carry += box[1023];
    __syncthreads();
  }
}

PROGRAM("sorting", "sorts and scans of many kernels, compared with the host") {
  constexpr unsigned n = 1 << 14;
  std::vector<unsigned> values(n);
  unsigned state = 12345;
  for (unsigned& value : values) value = state = state * 1664525u + 1013904223u;
  std::vector<unsigned> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  conformance::Device<unsigned> data(values);
  for (unsigned k = 2; k <= n; k *= 2)
    for (unsigned j = k / 2; j > 0; j /= 2) bitonic<<<n / 256, 256>>>(data, j, k);
  say("bitonic: %s", data.take() == sorted ? "sorted" : "wrong");
  std::vector<unsigned> few(values.begin(), values.begin() + 2000), fewSorted = few;
  std::sort(fewSorted.begin(), fewSorted.end());
  conformance::Device<unsigned> a(few), b(2000);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    radix<<<1, 256>>>(a, b, 2000, shift);
    radix<<<1, 256>>>(b, a, 2000, shift + 4);
  }
  say("radix: %s", a.take() == fewSorted ? "sorted" : "wrong");
  conformance::Device<unsigned long long> sums(n);
  data.put(values);
  prefix<<<1, 1024>>>(data, sums, n);
  const std::vector<unsigned long long> found = sums.take();
  unsigned long long sum = 0;
  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i) wrong += found[i] != (sum += values[i]);
  say("scan: %zu wrong, sum %llu", wrong, found.back());
}
