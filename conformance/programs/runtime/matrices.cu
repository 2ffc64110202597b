// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

template <class T, int kTile>
static __global__ void tiled(const T* a, const T* b, T* c, int n) {
  __shared__ T left[kTile][kTile], right[kTile][kTile + 1];
  const int row = static_cast<int>(blockIdx.y) * kTile + static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x);
  T sum = 0;
  for (int base = 0; base < n; base += kTile) {
    const int x = base + static_cast<int>(threadIdx.x), y = base + static_cast<int>(threadIdx.y);
    left[threadIdx.y][threadIdx.x] = row < n && x < n ? a[row * n + x] : T{0};
    right[threadIdx.y][threadIdx.x] = y < n && column < n ? b[y * n + column] : T{0};
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

static __global__ void transpose(const int* in, int* out, int width, int height) {
  __shared__ int tile[32][33];
  int x = static_cast<int>(blockIdx.x * 32 + threadIdx.x), y = static_cast<int>(blockIdx.y * 32 + threadIdx.y);
  for (int j = 0; j < 32; j += 8)
    if (x < width && y + j < height) tile[threadIdx.y + static_cast<unsigned>(j)][threadIdx.x] = in[(y + j) * width + x];
  __syncthreads();
  x = static_cast<int>(blockIdx.y * 32 + threadIdx.x), y = static_cast<int>(blockIdx.x * 32 + threadIdx.y);
  for (int j = 0; j < 32; j += 8)
    if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + static_cast<unsigned>(j)];
}

static __global__ void stencil(const double* in, double* out, int n) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), y = static_cast<int>(blockIdx.y);
  if (x >= n || y >= n) return;
  const auto at = [&](int i, int j) { return i < 0 || j < 0 || i >= n || j >= n ? 0.0 : in[j * n + i]; };
  out[y * n + x] = 0.5 * at(x, y) + 0.125 * (at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1));
}

template <class T>
static void multiply(const char* name) {
  constexpr int n = 100;
  std::vector<T> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[static_cast<size_t>(i)] = static_cast<T>(i % 17 - 8);
    b[static_cast<size_t>(i)] = static_cast<T>(i % 13 - 6);
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) c[static_cast<size_t>(i * n + j)] += a[static_cast<size_t>(i * n + k)] * b[static_cast<size_t>(k * n + j)];
  conformance::Device<T> deviceA(a), deviceB(b), deviceC(n * n);
  tiled<T, 16><<<dim3(7, 7), dim3(16, 16)>>>(deviceA, deviceB, deviceC, n);
  // Small whole numbers, so that every sum is exact.
  say("%s: %s", name, deviceC.take() == c ? "exact" : "wrong");
}

PROGRAM("matrices", "products in tiles, a transposition and a stencil, in several types") {
  multiply<float>("float");
  multiply<double>("double");
  multiply<int>("int");
  std::vector<int> in(70 * 45);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i);
  conformance::Device<int> deviceIn(in), deviceOut(in.size());
  transpose<<<dim3(3, 2), dim3(32, 8)>>>(deviceIn, deviceOut, 70, 45);
  const std::vector<int> out = deviceOut.take();
  say("transposed: %d %d %d", out[1], out[45], out.back());
  constexpr int n = 64;
  std::vector<double> grid(n * n);
  grid[n * n / 2 + n / 2] = 1024;
  conformance::Device<double> first(grid), second(n * n);
  for (int i = 0; i < 20; ++i) {
    stencil<<<dim3(1, n), n>>>(i % 2 == 0 ? first : second, i % 2 == 0 ? second : first, n);
  }
  const std::vector<double> result = first.take();
  say("stencil: %.17g, digest %016llx", result[n * n / 2 + n / 2], static_cast<unsigned long long>(conformance::digest(result.data(), n * n * 8)));
}
