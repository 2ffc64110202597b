// SPDX-License-Identifier: Apache-2.0
// Managed memory: read and written by both sides, without copies.
#include <cstdio>
#include <numeric>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

template <typename T>
T range(CUmem_range_attribute what, CUdeviceptr address, size_t bytes) {
  T value{};
  OK(cuMemRangeGetAttribute(&value, sizeof value, what, address, bytes));
  return value;
}

void bothSides() {
  constexpr uint32_t kWords = 100'000;
  constexpr size_t kBytes = kWords * sizeof(uint32_t);
  CUdeviceptr p = 0;
  OK(cuMemAllocManaged(&p, kBytes, CU_MEM_ATTACH_GLOBAL));
  auto* words = reinterpret_cast<uint32_t*>(p);
  std::iota(words, words + kWords, 0u);
  launchAdd(p, 1000, kWords);
  OK(cuCtxSynchronize());
  for (uint32_t i = 0; i < kWords; ++i) REQUIRE(words[i] == i + 1000);
  // Copies and fills treat it like any other memory.
  CUdeviceptr device = 0;
  OK(cuMemAlloc_v2(&device, kBytes));
  OK(cuMemcpyDtoD_v2(device, p, kBytes));
  OK(cuMemsetD32_v2(p, 7, kWords));
  OK(cuCtxSynchronize());
  REQUIRE(words[0] == 7 && words[kWords - 1] == 7);
  OK(cuMemcpy(p, device, kBytes));
  OK(cuCtxSynchronize());
  REQUIRE(words[5] == 1005);
  std::vector<uint32_t> host(kWords, 9);
  OK(cuMemcpyHtoD_v2(p, host.data(), kBytes));
  OK(cuCtxSynchronize());
  REQUIRE(words[kWords - 1] == 9);
  words[3] = 4;
  OK(cuMemcpyDtoH_v2(host.data(), p, kBytes));
  REQUIRE(host[3] == 4 && host[4] == 9);

  unsigned isManaged = 0, type = 0;
  OK(cuPointerGetAttribute(&isManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 100));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  REQUIRE(isManaged == 1 && type == CU_MEMORYTYPE_DEVICE);
  void* onHost = nullptr;
  OK(cuPointerGetAttribute(&onHost, CU_POINTER_ATTRIBUTE_HOST_POINTER, p + 8));
  REQUIRE(onHost == words + 2);
  OK(cuStreamAttachMemAsync(nullptr, p, 0, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemFree_v2(device));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(words));
  OK(cuMemFree_v2(p));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
}

/// Calls with arguments in managed memory that the device used before.
void argumentsInManagedMemory() {
  constexpr size_t kBytes = size_t{1} << 20;
  CUdeviceptr p = 0, device = 0;
  OK(cuMemAllocManaged(&p, kBytes, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemAlloc_v2(&device, 4096));
  auto* operations = reinterpret_cast<CUstreamBatchMemOpParams*>(p);
  for (int round = 1; round <= 3; ++round) {
    operations[0] = {};
    operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[0].writeValue.address = device;
    operations[0].writeValue.value = static_cast<cuuint32_t>(round);
    launchAdd(p + kBytes / 2, 1, 16);
    OK(cuStreamBatchMemOp_v2(nullptr, 1, operations, 0));
    uint32_t word = 0;
    OK(cuMemcpyDtoH_v2(&word, device, sizeof word));
    REQUIRE(word == static_cast<uint32_t>(round));
  }
  OK(cuMemFree_v2(device));
  OK(cuMemFree_v2(p));
}

void advice() {
  constexpr size_t kPage = 4096;
  CUdeviceptr p = 0;
  OK(cuMemAllocManaged(&p, 8 * kPage, CU_MEM_ATTACH_GLOBAL));
  REQUIRE(range<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 8 * kPage) == CU_DEVICE_INVALID);
  OK(cuMemAdvise(p, 8 * kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  OK(cuMemAdvise(p, 4 * kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
  REQUIRE(range<int>(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 8 * kPage) == 1);
  REQUIRE(range<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p + kPage, 2 * kPage) == 0);
  REQUIRE(range<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 8 * kPage) == CU_DEVICE_INVALID);
  CUmemLocation host{};
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  OK(cuMemAdvise_v2(p, 8 * kPage, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
  int accessed[3] = {};
  OK(cuMemRangeGetAttribute(accessed, sizeof accessed, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, 8 * kPage));
  REQUIRE(accessed[0] == CU_DEVICE_CPU && accessed[1] == CU_DEVICE_INVALID);
  OK(cuMemPrefetchAsync(p, 8 * kPage, 0, nullptr));
  REQUIRE(range<int>(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 8 * kPage) == 0);
  OK(cuMemPrefetchAsync_v2(p, kPage, host, 0, nullptr));
  REQUIRE(range<int>(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, kPage) == CU_DEVICE_CPU);
  REQUIRE(range<int>(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, p, kPage) == CU_MEM_LOCATION_TYPE_HOST);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(p, 9 * kPage, 0, nullptr));
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(p, kPage, 77, nullptr));
  OK(cuMemFree_v2(p));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(p, kPage, 0, nullptr));
}

}  // namespace

void managed() {
  useDevice();
  int supported = 0;
  OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
  if (!supported) {
    CUdeviceptr p = 0;
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemAllocManaged(&p, 100, CU_MEM_ATTACH_GLOBAL));
    std::printf("this device has no managed memory\n");
    return;
  }
  bothSides();
  argumentsInManagedMemory();
  advice();
}

}  // namespace millpond::programs
