// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
  if (m == 0) return n + 1;
  return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

static __device__ __noinline__ int odd(int n);
static __device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
static __device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }

static __device__ __noinline__ unsigned long long fibonacci(int n) {
  return n < 2 ? static_cast<unsigned long long>(n) : fibonacci(n - 1) + fibonacci(n - 2);
}

static __device__ void sort(int* data, int low, int high) {
  if (low >= high) return;
  const int pivot = data[(low + high) / 2];
  int i = low, j = high;
  while (i <= j) {
    while (data[i] < pivot) ++i;
    while (data[j] > pivot) --j;
    if (i <= j) {
      const int kept = data[i];
      data[i++] = data[j];
      data[j--] = kept;
    }
  }
  sort(data, low, j);
  sort(data, i, high);
}

static __global__ void run(unsigned long long* out, int* data) {
  const int i = static_cast<int>(threadIdx.x);
  if (i == 0) out[0] = ackermann(2, 7);
  if (i == 1) out[1] = fibonacci(15);
  out[2 + i] = static_cast<unsigned long long>(even(20 + i));
  sort(data + i * 100, 0, 99);
}

PROGRAM("recursion", "functions that call themselves and each other, deep stacks") {
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
  std::vector<int> values(800);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 7919 % 1009);
  conformance::Device<int> data(values);
  conformance::Device<unsigned long long> out(10);
  run<<<1, 8>>>(out, data);
  CHECK(cudaDeviceSynchronize());
  conformance::list("results", out.take());
  const std::vector<int> sorted = data.take();
  bool isSorted = true;
  for (size_t i = 1; i < sorted.size(); ++i) isSorted = isSorted && (i % 100 == 0 || sorted[i - 1] <= sorted[i]);
  say("sorted: %s, digest %016llx", isSorted ? "yes" : "no",
      static_cast<unsigned long long>(conformance::digest(sorted.data(), sorted.size() * sizeof(int))));
}
