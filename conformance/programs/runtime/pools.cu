// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void fill(int* data, int n, int value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) data[i] = value + i;
}

static void usage(cudaMemPool_t pool, const char* when) {
  unsigned long long used = 0, high = 0, reserved = 0;
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  say("%s: used %llu, at most %llu, reserved no less: %s", when, used, high, reserved >= used ? "yes" : "no");
}

PROGRAM("pools", "memory in stream order: pools, their attributes, reuse, trimming, errors") {
  if (!conformance::attribute(cudaDevAttrMemoryPoolsSupported)) conformance::skip("no memory pools");
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int* data = nullptr;
  SEE(cudaMallocAsync(&data, 4096, stream));
  fill<<<1, 64, 0, stream>>>(data, 1024, 7);
  std::vector<int> host(1024);
  CHECK(cudaMemcpyAsync(host.data(), data, 4096, cudaMemcpyDeviceToHost, stream));
  SEE(cudaFreeAsync(data, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("values %d %d", host[0], host[1023]);

  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 0;
  cudaMemPool_t pool;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  unsigned long long threshold = ~0ull;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  threshold = 0;
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  say("threshold kept: %s", threshold == ~0ull ? "yes" : "no");
  usage(pool, "empty");
  int *a = nullptr, *b = nullptr;
  CHECK(cudaMallocFromPoolAsync(&a, 1 << 20, pool, stream));
  CHECK(cudaMallocFromPoolAsync(&b, 3 << 20, pool, stream));
  CHECK(cudaStreamSynchronize(stream));
  usage(pool, "two");
  CHECK(cudaFreeAsync(a, stream));
  CHECK(cudaStreamSynchronize(stream));
  usage(pool, "one");
  CHECK(cudaFreeAsync(b, stream));
  CHECK(cudaStreamSynchronize(stream));
  usage(pool, "none");
  SEE(cudaMemPoolTrimTo(pool, 0));
  unsigned long long reserved = 1;
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  say("reserved after trimming: %llu", reserved);
  unsigned long long zero = 0;
  SEE(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
  usage(pool, "reset");

  cudaMemPool_t fallback, current;
  CHECK(cudaDeviceGetDefaultMemPool(&fallback, 0));
  CHECK(cudaDeviceGetMemPool(&current, 0));
  say("the current pool is the default one: %s", fallback == current ? "yes" : "no");
  CHECK(cudaDeviceSetMemPool(0, pool));
  CHECK(cudaDeviceGetMemPool(&current, 0));
  say("now the new one: %s", current == pool ? "yes" : "no");
  CHECK(cudaMallocAsync(&a, 1 << 20, stream));
  usage(pool, "by the device's pool");
  // Memory of a pool may be freed by cudaFree, and in another stream.
  CHECK(cudaStreamSynchronize(stream));
  SEE(cudaFree(a));
  CHECK(cudaMallocAsync(&a, 1 << 20, stream));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(nullptr, event, 0));
  SEE(cudaFreeAsync(a, nullptr));
  CHECK(cudaDeviceSynchronize());
  cudaMemAccessFlags access = cudaMemAccessFlagsProtNone;
  cudaMemLocation location = properties.location;
  CHECK(cudaMemPoolGetAccess(&access, pool, &location));
  say("access %d", static_cast<int>(access));
  CHECK(cudaDeviceSetMemPool(0, fallback));
  SEE(cudaMemPoolDestroy(pool));
  SEE(cudaMallocAsync(&a, 0, stream));
  SEE(cudaMallocAsync(&a, size_t{1} << 60, stream));
  SEE(cudaFreeAsync(nullptr, stream));
  cudaGetLastError();
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
}
