// SPDX-License-Identifier: Apache-2.0
// Takes device memory until there is no more, proves that what it got is really there, gives it back, and computes on:
// running out of memory is an answer that a program survives. What it gets differs from device to device.
#include "example.h"

// Thread 0 marks the first word of a chunk, thread 1 the last.
__global__ void mark(unsigned* chunk, size_t words, unsigned value) {
  chunk[threadIdx.x == 0 ? 0 : words - 1] = value + threadIdx.x;
}

__global__ void square(unsigned* data, size_t n) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) data[i] = static_cast<unsigned>(i * i);
}

static bool squares_are_right(size_t n) {
  unsigned* device;
  std::vector<unsigned> squares(n);
  CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
  square<<<static_cast<unsigned>((n + 255) / 256), 256>>>(device, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(squares.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  for (size_t i = 0; i < n; ++i) {
    if (squares[i] != static_cast<unsigned>(i * i)) return false;
  }
  return true;
}

static bool run(const example::Arguments& arguments) {
  const size_t chunk = arguments.size(0, 16, 65536) << 20;
  const size_t words = chunk / sizeof(unsigned);
  size_t free_bytes = 0, total_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  std::printf("memory: %zu MiB, of which free %zu MiB\n", total_bytes >> 20, free_bytes >> 20);

  std::vector<unsigned*> chunks;
  cudaError_t status = cudaSuccess;
  for (;;) {
    unsigned* pointer = nullptr;
    status = cudaMalloc(&pointer, chunk);
    if (status != cudaSuccess) break;
    mark<<<1, 2>>>(pointer, words, static_cast<unsigned>(chunks.size()) * 2);
    CHECK(cudaGetLastError());
    chunks.push_back(pointer);
  }
  if (status != cudaErrorMemoryAllocation) CHECK(status);
  // The failed allocation is also the runtime's last error; a program that continues clears it.
  if (cudaGetLastError() != cudaErrorMemoryAllocation) {
    std::printf("memhog: WRONG (the last error is not the failed allocation)\n");
    return false;
  }
  std::printf("out of memory after %zu chunks of %zu MiB: %zu MiB\n", chunks.size(), chunk >> 20,
              chunks.size() * (chunk >> 20));

  size_t wrong = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    unsigned marks[2] = {0, 0};
    CHECK(cudaMemcpy(&marks[0], chunks[i], sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&marks[1], chunks[i] + words - 1, sizeof(unsigned), cudaMemcpyDeviceToHost));
    wrong += marks[0] != i * 2 || marks[1] != i * 2 + 1;
  }
  for (unsigned* pointer : chunks) CHECK(cudaFree(pointer));

  const bool right = wrong == 0 && squares_are_right(1 << 16);
  std::printf("memhog: %s (%zu MiB taken and given back, %zu chunks damaged, computing goes on)\n",
              right ? "OK" : "WRONG", chunks.size() * (chunk >> 20), wrong);
  return right;
}

EXAMPLE("memhog", "[MEBIBYTES PER CHUNK]", "takes all memory, gives it back and computes on", run);
