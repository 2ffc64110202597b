// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __device__ int variable[10];

static void about(const char* what, const void* pointer) {
  cudaPointerAttributes a;
  const cudaError_t status = cudaPointerGetAttributes(&a, pointer);
  say("%s: %s, type %d, device %d, own device pointer %s, own host pointer %s", what, cudaGetErrorName(status), static_cast<int>(a.type),
      a.type == cudaMemoryTypeUnregistered ? 0 : a.device, a.devicePointer == pointer ? "yes" : "no", a.hostPointer == pointer ? "yes" : "no");
  cudaGetLastError();
}

PROGRAM("pointer-attributes", "what the runtime says about pointers of every kind, and of freed memory") {
  conformance::Device<char> memory(1000);
  about("device", memory.get());
  about("inside", memory.get() + 999);
  void* address = nullptr;
  CHECK(cudaGetSymbolAddress(&address, variable));
  about("variable", address);
  void* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, 100));
  about("pinned", pinned);
  CHECK(cudaFreeHost(pinned));
  about("freed pinned", pinned);
  int local = 0;
  about("stack", &local);
  static int fixed;
  about("static", &fixed);
  about("null", nullptr);
  void* freed = nullptr;
  CHECK(cudaMalloc(&freed, 64 << 20));
  CHECK(cudaFree(freed));
  about("freed", freed);
}
