// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {
namespace {

constexpr size_t kGranule = size_t{2} << 20;

CUmemAllocationProp onDevice(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

CUmemGenericAllocationHandle create(size_t bytes, int ordinal = 0) {
  const CUmemAllocationProp properties = onDevice(ordinal);
  CUmemGenericAllocationHandle handle = 0;
  OK(CU(cuMemCreate)(&handle, bytes, &properties, 0));
  return handle;
}

CUresult setAccess(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags, int ordinal = 0) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = flags;
  return CU(cuMemSetAccess)(address, bytes, &access, 1);
}

TEST("addresses are reserved where asked if that is free") {
  OK(CU(cuInit)(0));
  size_t granularity = 0;
  CUmemAllocationProp properties = onDevice(0);
  OK(CU(cuMemGetAllocationGranularity)(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK_EQ(granularity, kGranule);
  CUdeviceptr first = 0;
  OK(CU(cuMemAddressReserve)(&first, 64 * kGranule, 0, 0, 0));
  CHECK_EQ(first % kGranule, CUdeviceptr{0});
  CUdeviceptr second = 0;
  OK(CU(cuMemAddressReserve)(&second, kGranule, 0, first, 0));
  CHECK(second != first);
  OK(CU(cuMemAddressFree)(first, 64 * kGranule));
  CUdeviceptr again = 0;
  OK(CU(cuMemAddressReserve)(&again, 64 * kGranule, 0, first, 0));
  CHECK_EQ(again, first);
  CUdeviceptr aligned = 0;
  OK(CU(cuMemAddressReserve)(&aligned, kGranule, 64 * kGranule, 0, 0));
  CHECK_EQ(aligned % (64 * kGranule), CUdeviceptr{0});
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemAddressReserve)(&second, kGranule + 1, 0, 0, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemAddressFree)(again, kGranule));
  OK(CU(cuMemAddressFree)(again, 64 * kGranule));
  OK(CU(cuMemAddressFree)(second, kGranule));
  OK(CU(cuMemAddressFree)(aligned, kGranule));
}

TEST("memory can be mapped, used, unmapped and mapped elsewhere with its content") {
  PrimaryContext context;
  const size_t before = freeBytes();
  CUdeviceptr base = 0;
  OK(CU(cuMemAddressReserve)(&base, 8 * kGranule, 0, 0, 0));
  CUmemGenericAllocationHandle handle = create(2 * kGranule);
  CHECK_EQ(freeBytes(), before - 2 * kGranule);
  OK(CU(cuMemMap)(base, 2 * kGranule, 0, handle, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap)(base + kGranule, 2 * kGranule, 0, handle, 0));

  uint32_t value = 0xC0FFEE;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2)(base + 64, &value, sizeof(value)));
  OK(setAccess(base, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  unsigned long long flags = 0;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(CU(cuMemGetAccess)(&flags, &location, base));
  CHECK_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  OK(CU(cuMemcpyHtoD_v2)(base + 64, &value, sizeof(value)));

  OK(setAccess(base, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2)(base + 64, &value, sizeof(value)));
  uint32_t back = 0;
  OK(CU(cuMemcpyDtoH_v2)(&back, base + 64, sizeof(back)));
  CHECK_EQ(back, value);

  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemAddressFree)(base, 8 * kGranule));
  OK(CU(cuMemUnmap)(base, 2 * kGranule));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoH_v2)(&back, base + 64, sizeof(back)));
  OK(CU(cuMemMap)(base + 4 * kGranule, 2 * kGranule, 0, handle, 0));
  OK(setAccess(base + 4 * kGranule, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  back = 0;
  OK(CU(cuMemcpyDtoH_v2)(&back, base + 4 * kGranule + 64, sizeof(back)));
  CHECK_EQ(back, value);

  // The mapping keeps the memory alive after its handle.
  OK(CU(cuMemRelease)(handle));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemRelease)(handle));
  CHECK_EQ(freeBytes(), before - 2 * kGranule);
  CUmemGenericAllocationHandle retained = 0;
  OK(CU(cuMemRetainAllocationHandle)(&retained, reinterpret_cast<void*>(base + 5 * kGranule)));
  CUmemAllocationProp properties{};
  OK(CU(cuMemGetAllocationPropertiesFromHandle)(&properties, retained));
  CHECK_EQ(properties.location.id, 0);
  OK(CU(cuMemRelease)(retained));
  OK(CU(cuMemUnmap)(base + 4 * kGranule, 2 * kGranule));
  CHECK_EQ(freeBytes(), before);
  OK(CU(cuMemAddressFree)(base, 8 * kGranule));
}

TEST("memory side by side is one range, and released memory comes back zeroed") {
  PrimaryContext context;
  CUdeviceptr base = 0;
  OK(CU(cuMemAddressReserve)(&base, 4 * kGranule, 0, 0, 0));
  std::vector<CUmemGenericAllocationHandle> handles;
  for (size_t i = 0; i < 3; ++i) {
    handles.push_back(create(kGranule));
    OK(CU(cuMemMap)(base + i * kGranule, kGranule, 0, handles[i], 0));
  }
  OK(setAccess(base, 3 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  OK(CU(cuMemsetD8_v2)(base, 0xAB, 3 * kGranule));
  std::vector<uint8_t> bytes(3 * kGranule);
  OK(CU(cuMemcpyDtoH_v2)(bytes.data(), base, bytes.size()));
  for (uint8_t byte : bytes) CHECK_EQ(int{byte}, 0xAB);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD8_v2)(base, 0, 3 * kGranule + 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemUnmap)(base, kGranule / 2));
  OK(CU(cuMemUnmap)(base, 3 * kGranule));
  for (CUmemGenericAllocationHandle handle : handles) OK(CU(cuMemRelease)(handle));

  CUmemGenericAllocationHandle handle = create(3 * kGranule);
  OK(CU(cuMemMap)(base, 3 * kGranule, 0, handle, 0));
  OK(CU(cuMemRelease)(handle));
  OK(setAccess(base, 3 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  OK(CU(cuMemcpyDtoH_v2)(bytes.data(), base, bytes.size()));
  for (uint8_t byte : bytes) CHECK_EQ(int{byte}, 0);
  OK(CU(cuMemUnmap)(base, 3 * kGranule));
  OK(CU(cuMemAddressFree)(base, 4 * kGranule));
}

/// A mapping that can be used, of one granule.
CUdeviceptr map(CUmemGenericAllocationHandle handle, int ordinal) {
  CUdeviceptr base = 0;
  OK(CU(cuMemAddressReserve)(&base, kGranule, 0, 0, 0));
  OK(CU(cuMemMap)(base, kGranule, 0, handle, 0));
  OK(setAccess(base, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, ordinal));
  return base;
}

unsigned wordAt(CUdeviceptr address) {
  unsigned word = 0;
  OK(CU(cuMemcpyDtoH_v2)(&word, address, sizeof word));
  return word;
}

TEST("a file stands for memory that was made to be shared, and nobody else gets that memory") {
  PrimaryContext context;
  CUmemAllocationProp properties = onDevice(1);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle before = 0, handle = 0, opened = 0;
  OK(CU(cuMemCreate)(&before, kGranule, &properties, 0));
  OK(CU(cuMemCreate)(&handle, kGranule, &properties, 0));
  int file = -1;
  OK(CU(cuMemExportToShareableHandle)(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const auto open = [&](int which) {
    return CU(cuMemImportFromShareableHandle)(&opened, reinterpret_cast<void*>(static_cast<intptr_t>(which)),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  };
  OK(open(file));
  CUmemAllocationProp seen{};
  OK(CU(cuMemGetAllocationPropertiesFromHandle)(&seen, opened));
  CHECK_EQ(seen.location.id, 1);
  const CUdeviceptr own = map(handle, 1);
  const CUdeviceptr other = map(opened, 1);
  OK(CU(cuMemsetD32_v2)(own, 0xabc, 1));
  CHECK_EQ(wordAt(other), 0xabcu);
  OK(CU(cuMemUnmap)(own, kGranule));
  OK(CU(cuMemRelease)(handle));
  // A new allocation has another address.
  CUmemGenericAllocationHandle next = 0;
  OK(CU(cuMemCreate)(&next, kGranule, &properties, 0));
  const CUdeviceptr fresh = map(next, 1);
  OK(CU(cuMemsetD32_v2)(fresh, 0xdef, 1));
  CHECK_EQ(wordAt(other), 0xabcu);

  FAILS(CUDA_ERROR_INVALID_VALUE,
        CU(cuMemExportToShareableHandle)(&file, opened, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, open(-1));
  FAILS(CUDA_ERROR_INVALID_VALUE, open(0));
  for (const auto& [base, memory] : {std::pair{other, opened}, {fresh, next}}) {
    OK(CU(cuMemUnmap)(base, kGranule));
    OK(CU(cuMemRelease)(memory));
    OK(CU(cuMemAddressFree)(base, kGranule));
  }
  OK(CU(cuMemAddressFree)(own, kGranule));
  OK(CU(cuMemRelease)(before));
  CHECK_EQ(::close(file), 0);
}

TEST("what cannot be is refused") {
  PrimaryContext context;
  CUmemAllocationProp properties = onDevice(0);
  CUmemGenericAllocationHandle handle = 0;
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemCreate)(&handle, kMemoryBytes + kGranule, &properties, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemCreate)(&handle, 4096, &properties, 0));
  properties.location.id = 7;
  FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuMemCreate)(&handle, kGranule, &properties, 0));
  properties = onDevice(0);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuMemCreate)(&handle, kGranule, &properties, 0));

  CUdeviceptr base = 0;
  OK(CU(cuMemAddressReserve)(&base, kGranule, 0, 0, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap)(base, kGranule, 0, 12345, 0));
  handle = create(kGranule, 1);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap)(base, 2 * kGranule, 0, handle, 0));
  OK(CU(cuMemMap)(base, kGranule, 0, handle, 0));
  FAILS(CUDA_ERROR_INVALID_DEVICE, setAccess(base, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 0));
  OK(setAccess(base, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 1));
  OK(CU(cuMemUnmap)(base, kGranule));
  OK(CU(cuMemRelease)(handle));
  OK(CU(cuMemAddressFree)(base, kGranule));
}

}  // namespace
}  // namespace millpond::softgpu::testing
