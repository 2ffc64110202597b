// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: allocated, used and freed in stream order; pools, the memory that they keep, and their usage.
#include <cstdio>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

constexpr size_t kMi = size_t{1} << 20;

cuuint64_t ask(CUmemoryPool pool, CUmemPool_attribute what) {
  cuuint64_t value = 0;
  OK(cuMemPoolGetAttribute(pool, what, &value));
  return value;
}

void orderOfStreams() {
  CUstream a = nullptr, b = nullptr;
  OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CUevent done = nullptr;
  OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  constexpr uint32_t kWords = 100'000;
  CUdeviceptr kept = 0;
  OK(cuMemAllocAsync(&kept, kWords * sizeof(uint32_t), a));
  OK(cuMemsetD32Async(kept, 0, kWords, a));
  // A hundred rounds of allocation, use and free never need more than a few blocks.
  for (uint32_t round = 0; round < 100; ++round) {
    CUdeviceptr temporary = 0;
    OK(cuMemAllocAsync(&temporary, kWords * sizeof(uint32_t), a));
    REQUIRE(temporary != kept);
    OK(cuMemsetD32Async(temporary, round, kWords, a));
    launchAdd(temporary, 1, kWords, a);
    if (round == 99) OK(cuMemcpyDtoDAsync_v2(kept, temporary, kWords * sizeof(uint32_t), a));
    OK(cuMemFreeAsync(temporary, a));
  }
  OK(cuEventRecord(done, a));
  OK(cuStreamWaitEvent(b, done, 0));
  launchAdd(kept, 5, kWords, b);
  OK(cuStreamSynchronize(b));
  requireWords(kept, 105, kWords);
  OK(cuMemFreeAsync(kept, b));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(kept, b));
  OK(cuMemAllocAsync(&kept, 0, a));
  REQUIRE(kept == 0);
  OK(cuMemFreeAsync(kept, a));
  OK(cuStreamSynchronize(b));
  OK(cuEventDestroy_v2(done));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

void whatPoolsKeep() {
  CUmemoryPool standard = nullptr, current = nullptr;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  REQUIRE(standard == current && standard != nullptr);
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool own = nullptr;
  OK(cuMemPoolCreate(&own, &props));
  OK(cuDeviceSetMemPool(0, own));
  OK(cuDeviceGetMemPool(&current, 0));
  REQUIRE(current == own);

  CUdeviceptr p = 0;
  OK(cuMemAllocAsync(&p, 4 * kMi, nullptr));
  CUmemoryPool origin = nullptr;
  OK(cuPointerGetAttribute(&origin, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
  REQUIRE(origin == own);
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 4 * kMi);
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * kMi);
  OK(cuMemFreeAsync(p, nullptr));
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  // By default nothing is kept across a synchronisation.
  OK(cuStreamSynchronize(nullptr));
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 4 * kMi);
  cuuint64_t zero = 0;
  OK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);

  cuuint64_t keep = ~cuuint64_t{0};
  OK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == keep);
  OK(cuMemAllocFromPoolAsync(&p, 4 * kMi, own, nullptr));
  OK(cuMemFreeAsync(p, nullptr));
  OK(cuCtxSynchronize());
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * kMi);
  OK(cuMemPoolTrimTo(own, 0));
  REQUIRE(ask(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);

  int reuse = 9;
  OK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &reuse));
  REQUIRE(reuse == 1);
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  OK(cuMemPoolGetAccess(&access, own, &here));
  REQUIRE(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  // A block outlives its pool.
  OK(cuMemAllocFromPoolAsync(&p, 1000, own, nullptr));
  OK(cuMemPoolDestroy(own));
  OK(cuDeviceGetMemPool(&current, 0));
  REQUIRE(current == standard);
  OK(cuMemsetD8_v2(p, 0, 1000));
  launchAdd(p, 8, 250);
  requireWords(p, 8, 250);
  OK(cuMemFree_v2(p));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&p, 1000, own, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(standard));
}

void limits() {
  size_t before = 0, total = 0, now = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.maxSize = 8 * kMi;
  CUmemoryPool small = nullptr;
  OK(cuMemPoolCreate(&small, &props));
  CUdeviceptr p = 0, q = 0;
  OK(cuMemAllocFromPoolAsync(&p, 6 * kMi, small, nullptr));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&q, 6 * kMi, small, nullptr));
  OK(cuMemFreeAsync(p, nullptr));
  OK(cuMemAllocFromPoolAsync(&q, 8 * kMi, small, nullptr));
  OK(cuMemFreeAsync(q, nullptr));
  OK(cuMemPoolDestroy(small));
  // Memory that a pool retains is available to ordinary allocations, too.
  CUmemoryPool standard = nullptr;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  cuuint64_t keep = ~cuuint64_t{0};
  OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  const size_t most = before / kMi * kMi - 4 * kMi;
  OK(cuMemAllocAsync(&p, most, nullptr));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&q, most, nullptr));
  OK(cuMemsetD8_v2(p, 1, most));
  OK(cuMemFreeAsync(p, nullptr));
  OK(cuMemAlloc_v2(&q, most));
  OK(cuMemFree_v2(q));
  keep = 0;
  OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  OK(cuCtxSynchronize());
  OK(cuMemGetInfo_v2(&now, &total));
  REQUIRE(now == before);
}

}  // namespace

void memoryPools() {
  useDevice();
  int supported = 0;
  OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
  if (!supported) {
    std::printf("this device has no memory pools\n");
    return;
  }
  for (int round = 0; round < 3; ++round) {
    orderOfStreams();
    whatPoolsKeep();
    limits();
  }
}

}  // namespace millpond::programs
