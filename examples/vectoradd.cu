// SPDX-License-Identifier: Apache-2.0
// c = a + b, one thread an element.
#include "example.h"

#include <cmath>

__global__ void add(const float* a, const float* b, float* c, size_t n) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

static bool run(const example::Arguments& arguments) {
  const size_t n = arguments.size(0, 1 << 20, 1 << 28);
  const size_t bytes = n * sizeof(float);

  std::vector<float> a(n), b(n), c(n);
  for (size_t i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i % 1000) * 0.25f;
    b[i] = static_cast<float>(i % 777) * -0.5f;
  }

  float *device_a, *device_b, *device_c;
  CHECK(cudaMalloc(&device_a, bytes));
  CHECK(cudaMalloc(&device_b, bytes));
  CHECK(cudaMalloc(&device_c, bytes));
  CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));

  const unsigned threads = 256;
  const unsigned blocks = static_cast<unsigned>((n + threads - 1) / threads);
  add<<<blocks, threads>>>(device_a, device_b, device_c, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));

  float worst = 0;
  for (size_t i = 0; i < n; ++i) worst = std::fmax(worst, std::fabs(c[i] - (a[i] + b[i])));
  std::printf("vectoradd: %s (%zu elements, max error %g)\n", worst == 0 ? "OK" : "WRONG", n, worst);
  return worst == 0;
}

EXAMPLE("vectoradd", "[ELEMENTS]", "adds two vectors", run);
