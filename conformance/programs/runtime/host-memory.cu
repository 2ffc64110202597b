// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void twice(int* data, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] = data[i] * 2 + 1;
}

static void about(const char* what, const void* pointer) {
  cudaPointerAttributes attributes;
  const cudaError_t status = cudaPointerGetAttributes(&attributes, pointer);
  say("%s: %s, type %d, device pointer %s, host pointer %s", what, cudaGetErrorName(status), static_cast<int>(attributes.type),
      attributes.devicePointer == nullptr ? "none" : attributes.devicePointer == pointer ? "the same" : "another",
      attributes.hostPointer == nullptr ? "none" : attributes.hostPointer == pointer ? "the same" : "another");
}

PROGRAM("host-memory", "pinned memory with every flag, mapped into kernels, its attributes and flags") {
  constexpr int n = 5000;
  for (const unsigned flags : {cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped, cudaHostAllocWriteCombined,
                               cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined}) {
    int* host = nullptr;
    CHECK(cudaHostAlloc(reinterpret_cast<void**>(&host), n * sizeof(int), flags));
    for (int i = 0; i < n; ++i) host[i] = i;
    int* mapped = nullptr;
    CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&mapped), host, 0));
    twice<<<(n + 127) / 128, 128>>>(mapped, n);
    CHECK(cudaDeviceSynchronize());
    unsigned seen = 99;
    CHECK(cudaHostGetFlags(&seen, host));
    say("flags %u: reported %u, device pointer %s, first %d, last %d", flags, seen, mapped == host ? "the same" : "another", host[0],
        host[n - 1]);
    about("pinned", host);
    about("inside", host + 10);
    CHECK(cudaFreeHost(host));
  }
  int* pinned = nullptr;
  CHECK(cudaMallocHost(reinterpret_cast<void**>(&pinned), n * sizeof(int)));
  conformance::Device<int> device(n);
  for (int i = 0; i < n; ++i) pinned[i] = i * 3;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMemcpyAsync(device, pinned, n * sizeof(int), cudaMemcpyHostToDevice, stream));
  twice<<<(n + 127) / 128, 128, 0, stream>>>(device, n);
  CHECK(cudaMemcpyAsync(pinned, device, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("there and back: %d %d", pinned[1], pinned[n - 1]);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(pinned));
  SEE(cudaFreeHost(pinned));
  int ordinary = 0;
  about("ordinary memory", &ordinary);
  void* mapped = nullptr;
  SEE(cudaHostGetDevicePointer(&mapped, &ordinary, 0));
  unsigned flags = 0;
  SEE(cudaHostGetFlags(&flags, &ordinary));
  SEE(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 16, 0x80));
  SEE(cudaHostAlloc(nullptr, 16, 0));
  about("device memory", device.get());
}
