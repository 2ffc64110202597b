// SPDX-License-Identifier: Apache-2.0
// Takes device memory, says so, and holds it until its standard input ends; then proves that it held it all the time.
#include "example.h"

__global__ void fill(unsigned* data, size_t n, unsigned seed) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) data[i] = static_cast<unsigned>(i) * 2654435761u + seed;
}

static bool run(const example::Arguments& arguments) {
  const size_t mebibytes = arguments.size(0, 16, 65536);
  const unsigned seed = static_cast<unsigned>(mebibytes);
  const size_t bytes = mebibytes << 20;
  // The last of it is filled and checked: filling all of a large card would say no more.
  const size_t n = (size_t{1} << 20) / sizeof(unsigned);
  unsigned* device;
  CHECK(cudaMalloc(&device, bytes));
  unsigned* last = device + bytes / sizeof(unsigned) - n;
  fill<<<static_cast<unsigned>((n + 255) / 256), 256>>>(last, n, seed);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  std::printf("holds %zu MiB\n", mebibytes);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }

  std::vector<unsigned> held(n);
  CHECK(cudaMemcpy(held.data(), last, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i) wrong += held[i] != static_cast<unsigned>(i) * 2654435761u + seed;
  std::printf("memhold: %s (%zu MiB held, %zu words wrong)\n", wrong == 0 ? "OK" : "WRONG", mebibytes, wrong);
  return wrong == 0;
}

EXAMPLE("memhold", "[MEBIBYTES]", "takes memory and holds it until its standard input ends", run);
