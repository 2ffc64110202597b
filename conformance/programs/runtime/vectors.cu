// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void add(const float* a, const float* b, float* c, size_t n) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

static __global__ void shape(uint32_t* out) {
  const uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = block * 1000 + thread;
}

struct Large {
  int values[900];
};

static __global__ void byValue(Large large, char c, double d, short s, long long* out) {
  long long sum = c + s + static_cast<long long>(d);
  for (int value : large.values) sum += value;
  *out = sum;
}

PROGRAM("vectors", "kernels of every shape, parameters by value, copies both ways") {
  constexpr size_t n = 100003;
  std::vector<float> a(n), b(n);
  for (size_t i = 0; i < n; ++i) a[i] = static_cast<float>(i % 1000) * 0.25f, b[i] = static_cast<float>(i % 777) * -0.5f;
  conformance::Device<float> deviceA(a), deviceB(b), deviceC(n);
  add<<<(n + 255) / 256, 256>>>(deviceA, deviceB, deviceC, n);
  CHECK(cudaGetLastError());
  const std::vector<float> c = deviceC.take();
  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i) wrong += c[i] != a[i] + b[i];
  say("sums: %zu wrong, digest %016llx", wrong,
      static_cast<unsigned long long>(conformance::digest(c.data(), n * sizeof(float))));

  const dim3 shapes[][2] = {{dim3(1), dim3(1)},       {dim3(3, 2, 2), dim3(4, 3, 5)}, {dim3(1, 1, 7), dim3(1, 1, 64)},
                            {dim3(5), dim3(1, 1024)}, {dim3(2, 9), dim3(33, 31)}};
  for (const auto& [grid, block] : shapes) {
    const size_t count = static_cast<size_t>(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
    conformance::Device<uint32_t> out(count);
    shape<<<grid, block>>>(out);
    CHECK(cudaDeviceSynchronize());
    const std::vector<uint32_t> values = out.take();
    say("grid %u,%u,%u of %u,%u,%u: first %u, last %u, digest %016llx", grid.x, grid.y, grid.z, block.x, block.y, block.z,
        values.front(), values.back(),
        static_cast<unsigned long long>(conformance::digest(values.data(), count * sizeof(uint32_t))));
  }

  Large large;
  for (int i = 0; i < 900; ++i) large.values[i] = i * i;
  conformance::Device<long long> sum(1);
  byValue<<<1, 1>>>(large, 'a', 1e6, -5, sum);
  say("3600 bytes by value: %lld", sum.take()[0]);
}
