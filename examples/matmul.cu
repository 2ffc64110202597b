// SPDX-License-Identifier: Apache-2.0
// C = A × B for square matrices. Each block computes a 16 × 16 tile of C from tiles of A and B in shared memory.
#include "example.h"

#include <cmath>

constexpr int kTile = 16;

__global__ void multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kTile + x;
  const int row = static_cast<int>(blockIdx.y) * kTile + y;

  float sum = 0;
  for (int start = 0; start < n; start += kTile) {
    tile_a[y][x] = row < n && start + x < n ? a[row * n + start + x] : 0;
    tile_b[y][x] = start + y < n && column < n ? b[(start + y) * n + column] : 0;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[y][k] * tile_b[k][x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

static bool run(const example::Arguments& arguments) {
  const int n = static_cast<int>(arguments.size(0, 256, 8192));
  const size_t count = static_cast<size_t>(n) * static_cast<size_t>(n);
  const size_t bytes = count * sizeof(float);

  // Small whole numbers: every partial sum is exact in float, so the order of additions does not matter.
  std::vector<float> a(count), b(count), c(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<float>(i * 7 % 13) - 6;
    b[i] = static_cast<float>(i * 11 % 17) - 8;
  }

  float *device_a, *device_b, *device_c;
  CHECK(cudaMalloc(&device_a, bytes));
  CHECK(cudaMalloc(&device_b, bytes));
  CHECK(cudaMalloc(&device_c, bytes));
  CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));

  const unsigned tiles = static_cast<unsigned>((n + kTile - 1) / kTile);
  multiply<<<dim3(tiles, tiles), dim3(kTile, kTile)>>>(device_a, device_b, device_c, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));

  std::vector<float> expected(count, 0);
  for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
    for (size_t k = 0; k < static_cast<size_t>(n); ++k) {
      const float factor = a[row * n + k];
      for (size_t column = 0; column < static_cast<size_t>(n); ++column) {
        expected[row * n + column] += factor * b[k * n + column];
      }
    }
  }
  float worst = 0;
  for (size_t i = 0; i < count; ++i) worst = std::fmax(worst, std::fabs(c[i] - expected[i]));
  std::printf("matmul: %s (%dx%d, max error %g)\n", worst == 0 ? "OK" : "WRONG", n, n, worst);
  return worst == 0;
}

EXAMPLE("matmul", "[ROWS]", "multiplies two square matrices, tiled in shared memory", run);
