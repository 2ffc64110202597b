// SPDX-License-Identifier: Apache-2.0
// Pinned and registered host memory.
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

constexpr size_t kWords = 70'001;
constexpr size_t kBytes = kWords * sizeof(uint32_t);

void throughTheDevice(uint32_t* host) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr device = 0;
  OK(cuMemAlloc_v2(&device, kBytes));
  std::iota(host, host + kWords, 5u);
  OK(cuMemcpyHtoDAsync_v2(device, host, kBytes, stream));
  launchAdd(device, 100, kWords, stream);
  OK(cuMemcpyDtoHAsync_v2(host, device, kBytes, stream));
  OK(cuStreamSynchronize(stream));
  for (uint32_t i = 0; i < kWords; ++i) REQUIRE(host[i] == i + 105);
  OK(cuMemFree_v2(device));
  OK(cuStreamDestroy_v2(stream));
}

void registered() {
  std::vector<uint32_t> all(kWords + 3);
  uint32_t* host = all.data() + 1;  // not at a page boundary
  OK(cuMemHostRegister_v2(host, kBytes, CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(host + 10, 100, 0));
  unsigned type = 0, flags = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(host + 7)));
  REQUIRE(type == CU_MEMORYTYPE_HOST);
  OK(cuMemHostGetFlags(&flags, host));
  REQUIRE((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
  throughTheDevice(host);
  CUdeviceptr onDevice = 0;
  OK(cuMemHostGetDevicePointer_v2(&onDevice, host, 0));
  all.front() = 1;
  launchAdd(onDevice, 1, kWords);
  all.back() = 2;
  OK(cuCtxSynchronize());
  REQUIRE(all.front() == 1 && host[0] == 106 && host[kWords - 1] == kWords + 105 && all.back() == 2);
  throughTheDevice(host);
  // Another range in the same pages, and a copy over all of each.
  uint32_t* beside = all.data() + 1 + kWords;
  OK(cuMemHostRegister_v2(beside, 2 * sizeof(uint32_t), 0));
  launchAdd(reinterpret_cast<CUdeviceptr>(beside), 5, 2);
  throughTheDevice(host);
  OK(cuCtxSynchronize());
  REQUIRE(beside[0] == 5 && beside[1] == 7);
  OK(cuMemHostUnregister(beside));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
  OK(cuMemHostUnregister(host));
  EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(nullptr, 100, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(host, 0, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(reinterpret_cast<void*>(8192), 4096, 0));
}

void pinned(unsigned flags) {
  void* host = nullptr;
  OK(cuMemHostAlloc(&host, kBytes, flags));
  throughTheDevice(static_cast<uint32_t*>(host));
  int canMap = 0;
  OK(cuDeviceGetAttribute(&canMap, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
  CUdeviceptr onDevice = 0;
  EXPECT(canMap ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED, cuMemHostGetDevicePointer_v2(&onDevice, host, 0));
  if (canMap) {
    launchAdd(onDevice, 1, kWords);
    OK(cuCtxSynchronize());
    REQUIRE(static_cast<uint32_t*>(host)[3] == 109);
  }
  EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
  OK(cuMemFreeHost(host));
}

}  // namespace

void hostMemory() {
  useDevice();
  registered();
  for (const unsigned flags : {0u, 1u, 2u, 4u, 7u}) pinned(flags);
  void* host = nullptr;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 100, 64));
}

}  // namespace millpond::programs
