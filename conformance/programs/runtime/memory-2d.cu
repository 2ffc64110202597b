// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void transform(char* data, size_t pitch, int width, int height) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), y = static_cast<int>(blockIdx.y);
  if (x < width && y < height) reinterpret_cast<int*>(data + static_cast<size_t>(y) * pitch)[x] += x * 1000 + y;
}

PROGRAM("memory-2d", "pitched memory: allocation, copies of every direction, sets, what is wrong") {
  constexpr int width = 100, height = 37;
  char* data = nullptr;
  size_t pitch = 0;
  CHECK(cudaMallocPitch(&data, &pitch, width * sizeof(int), height));
  say("the pitch is enough and a multiple of 256: %s", pitch >= width * sizeof(int) && pitch % 256 == 0 ? "yes" : "no");
  std::vector<int> host(width * height), back(120 * height, -1);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<int>(i);
  CHECK(cudaMemcpy2D(data, pitch, host.data(), width * sizeof(int), width * sizeof(int), height, cudaMemcpyHostToDevice));
  transform<<<dim3(2, height), 64>>>(data, pitch, width, height);
  CHECK(cudaMemcpy2D(back.data(), 120 * sizeof(int), data, pitch, width * sizeof(int), height, cudaMemcpyDeviceToHost));
  say("back: %d %d %d, between the rows %d, digest %016llx", back[0], back[99], back[36 * 120 + 99], back[100],
      static_cast<unsigned long long>(conformance::digest(back.data(), back.size() * sizeof(int))));
  char* other = nullptr;
  CHECK(cudaMalloc(&other, 512 * height));
  CHECK(cudaMemset2D(other, 512, 0xab, 512, height));
  CHECK(cudaMemcpy2D(other + 8, 512, data + pitch, pitch, 40, 20, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemset2D(other, 512, 0x55, 4, 10));
  std::vector<unsigned> rows(128 * height);
  CHECK(cudaMemcpy(rows.data(), other, 512 * height, cudaMemcpyDeviceToHost));
  say("device to device: %08x %08x %u %u %08x", rows[0], rows[1], rows[2], rows[128 * 3 + 11], rows[128 * 19 + 12]);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMemcpy2DAsync(data, pitch, host.data(), 200, 200, height, cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemset2DAsync(data, pitch, 0, 4, height, stream));
  CHECK(cudaMemcpy2DAsync(back.data(), 480, data, pitch, 200, height, cudaMemcpyDefault, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("asynchronously: %d %d %d", back[0], back[1], back[36 * 120 + 49]);
  CHECK(cudaStreamDestroy(stream));
  SEE(cudaMemcpy2D(data, pitch, host.data(), 100, 200, 5, cudaMemcpyHostToDevice));
  SEE(cudaMemcpy2D(data, pitch, host.data(), 400, 0, 5, cudaMemcpyHostToDevice));
  SEE(cudaMemset2D(data, 4, 0, 100, 3));
  char* empty = nullptr;
  SEE(cudaMallocPitch(&empty, &pitch, 0, 5));
  CHECK(cudaFree(data));
  CHECK(cudaFree(other));
}
