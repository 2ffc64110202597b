// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {
namespace {

TEST("memory is aligned, zero-cost and counted") {
  PrimaryContext context;
  const size_t before = freeBytes();
  CHECK_EQ(before, kMemoryBytes);
  CUdeviceptr small = 0;
  CUdeviceptr large = 0;
  OK(CU(cuMemAlloc_v2)(&small, 1));
  OK(CU(cuMemAlloc_v2)(&large, 100 << 20));
  CHECK_EQ(small % 512, CUdeviceptr{0});
  CHECK(freeBytes() <= before - (100 << 20));
  CUdeviceptr base = 0;
  size_t size = 0;
  OK(CU(cuMemGetAddressRange_v2)(&base, &size, large + 12345));
  CHECK_EQ(base, large);
  CHECK_EQ(size, size_t{100 << 20});
  FAILS(CUDA_ERROR_NOT_FOUND, CU(cuMemGetAddressRange_v2)(&base, &size, large + (100 << 20)));
  OK(CU(cuMemFree_v2)(small));
  OK(CU(cuMemFree_v2)(large));
  CHECK_EQ(freeBytes(), before);
}

TEST("more than there is cannot be had, and the rest goes on") {
  PrimaryContext context;
  CUdeviceptr pointer = 0;
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2)(&pointer, kMemoryBytes + 1));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2)(&pointer, SIZE_MAX));
  OK(CU(cuMemAlloc_v2)(&pointer, kMemoryBytes));
  CHECK_EQ(freeBytes(), size_t{0});
  CUdeviceptr one = 0;
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2)(&one, 1));
  OK(CU(cuMemFree_v2)(pointer));
  OK(CU(cuMemAlloc_v2)(&one, 1));
  OK(CU(cuMemFree_v2)(one));
  CHECK_EQ(freeBytes(), kMemoryBytes);
}

TEST("only what was allocated can be freed, and once") {
  PrimaryContext context;
  CUdeviceptr pointer = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemAlloc_v2)(&pointer, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemAlloc_v2)(nullptr, 16));
  OK(CU(cuMemAlloc_v2)(&pointer, 8192));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(pointer + 512));
  OK(CU(cuMemFree_v2)(pointer));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(pointer));
  OK(CU(cuMemFree_v2)(0));
  int onTheStack = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(reinterpret_cast<CUdeviceptr>(&onTheStack)));
}

TEST("the memory of one device is not that of the other") {
  PrimaryContext zero(0);
  CUdeviceptr pointer = 0;
  OK(CU(cuMemAlloc_v2)(&pointer, kMemoryBytes));
  {
    PrimaryContext one(1);
    CHECK_EQ(freeBytes(), kMemoryBytes);
  }
  OK(CU(cuMemFree_v2)(pointer));
}

TEST("pitched memory has aligned rows") {
  PrimaryContext context;
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  OK(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1000, 10, 4));
  CHECK_EQ(pitch, size_t{1024});
  size_t size = 0;
  OK(CU(cuMemGetAddressRange_v2)(nullptr, &size, pointer));
  CHECK_EQ(size, pitch * 10);
  OK(CU(cuMemFree_v2)(pointer));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1000, 10, 3));
}

TEST("pinned memory is ordinary memory that the driver knows") {
  PrimaryContext context;
  void* host = nullptr;
  OK(CU(cuMemHostAlloc)(&host, 10000, CU_MEMHOSTALLOC_PORTABLE));
  std::memset(host, 1, 10000);
  CUdeviceptr device = 0;
  OK(CU(cuMemHostGetDevicePointer_v2)(&device, host, 0));
  CHECK_EQ(device, reinterpret_cast<CUdeviceptr>(host));
  unsigned flags = 0;
  OK(CU(cuMemHostGetFlags)(&flags, host));
  CHECK(flags & CU_MEMHOSTALLOC_PORTABLE);
  CHECK_EQ(freeBytes(), kMemoryBytes);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(device));
  OK(CU(cuMemFreeHost)(host));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeHost)(host));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemHostAlloc)(&host, 16, 0x100));
}

TEST("memory is registered once, and unregistered") {
  PrimaryContext context;
  std::vector<char> buffer(100000);
  OK(CU(cuMemHostRegister_v2)(buffer.data(), buffer.size(), 0));
  FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CU(cuMemHostRegister_v2)(buffer.data() + 500, 10, 0));
  CUdeviceptr device = 0;
  OK(CU(cuMemHostGetDevicePointer_v2)(&device, buffer.data() + 7, 0));
  CHECK_EQ(device, reinterpret_cast<CUdeviceptr>(buffer.data() + 7));
  FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CU(cuMemHostUnregister)(buffer.data() + 7));
  OK(CU(cuMemHostUnregister)(buffer.data()));
  FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CU(cuMemHostUnregister)(buffer.data()));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemHostRegister_v2)(reinterpret_cast<void*>(0x1000), 4096, 0));
}

TEST("pointers tell what they are") {
  PrimaryContext context;
  CUdeviceptr device = 0;
  void* host = nullptr;
  OK(CU(cuMemAlloc_v2)(&device, 5000));
  OK(CU(cuMemHostAlloc)(&host, 5000, 0));
  unsigned type = 0;
  OK(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 10));
  CHECK_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  OK(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(host)));
  CHECK_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  CUcontext owner = nullptr;
  OK(CU(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, device));
  CHECK(owner == context.handle());

  int local = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE,
        CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&local)));

  CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                               CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                               CU_POINTER_ATTRIBUTE_HOST_POINTER};
  int ordinal = 99;
  CUdeviceptr start = 0;
  size_t size = 0;
  void* hostPointer = nullptr;
  void* values[] = {&type, &ordinal, &start, &size, &hostPointer};
  OK(CU(cuPointerGetAttributes)(5, ids, values, device + 100));
  CHECK_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  CHECK_EQ(ordinal, 0);
  CHECK_EQ(start, device);
  CHECK_EQ(size, size_t{5000});
  CHECK(hostPointer == nullptr);
  OK(CU(cuPointerGetAttributes)(5, ids, values, reinterpret_cast<CUdeviceptr>(&local)));
  CHECK_EQ(type, 0u);
  CHECK_EQ(ordinal, -2);
  OK(CU(cuMemFreeHost)(host));
  OK(CU(cuMemFree_v2)(device));
}

}  // namespace
}  // namespace millpond::softgpu::testing
