// SPDX-License-Identifier: Apache-2.0
// Entry points: device memory, host memory.
#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/capture.h"
#include "softgpu/driver/host/pages.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

CUresult allocateHost(void** pp, size_t bytes, unsigned flags) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (CUresult result = checkUnsafeCall()) return result;
    if (!pp) return CUDA_ERROR_INVALID_VALUE;
    return driver.memory().allocateHost(*context, bytes, flags, pp);
  });
}

RegionPtr findHost(Driver& driver, const void* p) {
  RegionPtr region = driver.memory().space().find(reinterpret_cast<uint64_t>(p));
  return region && region->isHost() ? region : nullptr;
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return withContext([&](Driver&, const ContextPtr& context) -> CUresult {
    if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
    *free = context->device().freeBytes();
    *total = context->device().memoryBytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!dptr) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = checkUnsafeCall()) return result;
    uint64_t address = 0;
    if (CUresult result = driver.memory().allocate(*context, bytesize, &address)) return result;
    *dptr = address;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (CUresult result = checkUnsafeCall()) return result;
    if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0) return CUDA_ERROR_INVALID_VALUE;
    if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) return CUDA_ERROR_INVALID_VALUE;
    if (WidthInBytes > kMaxPitch) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t pitch = roundUp(WidthInBytes, kPitchAlignment);
    uint64_t bytes;
    if (__builtin_mul_overflow(pitch, uint64_t{Height}, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address = 0;
    if (CUresult result = driver.memory().allocate(*context, bytes, &address)) return result;
    *dptr = address;
    *pPitch = pitch;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return withDriver([&](Driver&) -> CUresult {
    // Freeing null also requires a context.
    if (dptr == 0 && !currentContext()) return CUDA_SUCCESS;
    return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
      if (CUresult result = checkUnsafeCall()) return result;
      if (GraphMemory::isOne(dptr)) return GraphMemory::takeBack(dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      return driver.memory().free(*context, dptr);
    });
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const RegionPtr region = driver.memory().space().find(dptr);
    if (!region || region->kind == Region::Kind::registered) return CUDA_ERROR_NOT_FOUND;
    if (pbase) *pbase = region->base;
    if (psize) *psize = region->bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return allocateHost(pp, bytesize, 0); }
CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) { return allocateHost(pp, bytesize, Flags); }

CUresult cuMemFreeHost(void* p) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (CUresult result = checkUnsafeCall()) return result;
    return driver.memory().freeHost(*context, p);
  });
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return withContext([&](Driver& driver, const ContextPtr& context) {
    return driver.memory().registerHost(*context, p, bytesize, Flags);
  });
}

CUresult cuMemHostUnregister(void* p) {
  return withContext(
      [&](Driver& driver, const ContextPtr& context) { return driver.memory().unregisterHost(*context, p); });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    if (!pdptr || Flags != 0 || !findHost(driver, p)) return CUDA_ERROR_INVALID_VALUE;
    *pdptr = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const RegionPtr region = findHost(driver, p);
    if (!pFlags || !region) return CUDA_ERROR_INVALID_VALUE;
    // With unified addresses all host memory is mapped for the device.
    *pFlags = region->hostFlags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
