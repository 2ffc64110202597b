// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __device__ __noinline__ int deep(int n) {
  volatile int box[64];
  box[n & 63] = n;
  return n == 0 ? 0 : deep(n - 1) + (box[n & 63] != n);
}
static __global__ void recurse(int* out, int depth) { *out = deep(depth) + depth; }

PROGRAM("limits", "limits of a device: what they are, setting them, a stack that is deep enough after it") {
  const cudaLimit limits[] = {cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitMaxL2FetchGranularity, cudaLimitPersistingL2CacheSize};
  for (const cudaLimit limit : limits) {
    size_t value = 0;
    const cudaError_t status = cudaDeviceGetLimit(&value, limit);
    say("limit %d: %s", static_cast<int>(limit), status == cudaSuccess ? "some" : cudaGetErrorName(status));
  }
  size_t value = 0;
  SEE(cudaDeviceGetLimit(&value, static_cast<cudaLimit>(0x50)));
  SEE(cudaDeviceSetLimit(static_cast<cudaLimit>(0x50), 1));
  // The driver allocates this much for every thread that can be resident on the device.
  SEE(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
  CHECK(cudaDeviceGetLimit(&value, cudaLimitStackSize));
  say("stack of 16 KiB: %s", value >= (16u << 10) ? "yes" : "no");
  conformance::Device<int> out(1);
  recurse<<<1, 1>>>(out, 30);
  SEE(cudaDeviceSynchronize());
  say("recursed: %d", out.take()[0]);
  SEE(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 << 20));
  CHECK(cudaDeviceGetLimit(&value, cudaLimitPrintfFifoSize));
  say("printf buffer of 4 MiB: %s", value >= (4u << 20) ? "yes" : "no");
  cudaFuncCache cache;
  SEE(cudaDeviceGetCacheConfig(&cache));
  SEE(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
  SEE(cudaGetLastError());
}
