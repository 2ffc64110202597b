// SPDX-License-Identifier: Apache-2.0
// Entry points: virtual-memory management.
#include "softgpu/driver/api/api.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

// The device for memory with these properties, or the reason why there is none.
CUresult deviceOf(Driver& driver, const CUmemAllocationProp* properties, Device** device) {
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = driver.device(properties->location.id);
  return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  return withDriver([&](Driver& driver) -> CUresult {
    Device* device = nullptr;
    if (CUresult result = deviceOf(driver, prop, &device)) return result;
    if (!granularity) return CUDA_ERROR_INVALID_VALUE;
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!ptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    uint64_t address = 0;
    if (CUresult result = driver.virtualMemory().reserve(size, alignment, addr, &address)) return result;
    *ptr = address;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return withDriver([&](Driver& driver) { return driver.virtualMemory().unreserve(ptr, size); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!handle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (CUresult result = deviceOf(driver, prop, &device)) return result;
    const bool isShareable = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    return driver.virtualMemory().create(driver.deviceMemory().store(*device), *device, size, isShareable, handle);
  });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!shareableHandle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    if (Sanitizer* const sanitizer = driver.sanitizer()) sanitizer->allocations().share();
    return driver.virtualMemory().share(handle, static_cast<int*>(shareableHandle));
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    const auto file = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
    const auto device = [&](int ordinal) { return driver.device(ordinal); };
    return driver.virtualMemory().open(PhysicalMemory::open(file, device), handle);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return withDriver([&](Driver& driver) { return driver.virtualMemory().release(handle); });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    return driver.virtualMemory().retain(reinterpret_cast<uint64_t>(addr), handle);
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!prop) return CUDA_ERROR_INVALID_VALUE;
    return driver.virtualMemory().properties(handle, prop);
  });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return driver.virtualMemory().map(ptr, size, offset, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return withDriver([&](Driver& driver) { return driver.virtualMemory().unmap(ptr, size); });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!desc || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
      if (!driver.device(desc[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
      const CUmemAccess_flags access = desc[i].flags;
      if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE && access != CU_MEM_ACCESS_FLAGS_PROT_READ &&
          access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      if (CUresult result = driver.virtualMemory().setAccess(ptr, size, desc[i].location.id, access)) return result;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!driver.device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (CUresult result = driver.virtualMemory().access(ptr, location->id, &access)) return result;
    *flags = static_cast<unsigned long long>(access);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
