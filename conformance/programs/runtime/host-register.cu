// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include "conformance.h"

static __global__ void negate(int* data, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) data[i] = -data[i];
}

PROGRAM("host-register", "registering memory of the program: whole pages and parts, flags, kernels that reach it") {
  constexpr size_t bytes = 64 << 10;
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* memory = static_cast<int*>(map);
  constexpr int n = bytes / sizeof(int);
  for (int i = 0; i < n; ++i) memory[i] = i;
  SEE(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  SEE(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
  cudaGetLastError();
  unsigned flags = 99;
  SEE(cudaHostGetFlags(&flags, memory));
  int* mapped = nullptr;
  CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&mapped), memory, 0));
  negate<<<1, 256>>>(mapped, n);
  SEE(cudaDeviceSynchronize());
  say("seen by the host: %d %d", memory[1], memory[n - 1]);
  memory[1] = 77;
  conformance::Device<int> device(n);
  CHECK(cudaMemcpyAsync(device, memory, bytes, cudaMemcpyHostToDevice));
  say("copied: %d", device.take()[1]);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, memory + 5));
  say("type %d", static_cast<int>(attributes.type));
  SEE(cudaHostUnregister(memory));
  SEE(cudaHostUnregister(memory));
  cudaGetLastError();
  say("the content stays: %d %d", memory[1], memory[2]);
  // Memory of the heap starts and ends within pages.
  std::vector<int> vector(3000, 5);
  SEE(cudaHostRegister(vector.data() + 7, 1000 * sizeof(int), cudaHostRegisterDefault));
  CHECK(cudaMemcpy(device, vector.data(), 3000 * sizeof(int), cudaMemcpyHostToDevice));
  say("copied across the border: %d %d", device.take()[0], device.take()[2999]);
  SEE(cudaHostUnregister(vector.data() + 7));
  SEE(cudaHostRegister(nullptr, 100, 0));
  SEE(cudaHostRegister(memory, 0, 0));
  SEE(cudaHostRegister(memory, bytes, 0x1000));
  munmap(map, bytes);
}
