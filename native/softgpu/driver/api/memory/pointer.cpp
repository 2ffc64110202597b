// SPDX-License-Identifier: Apache-2.0
// Entry points: attributes of pointers.
#include <cstring>

#include "softgpu/driver/api/api.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

/// Everything that can be queried about an address.
struct PointerInfo {
  RegionPtr region;              // null for an address that the driver does not know
  uint64_t reservationBase = 0;  // of reserved addresses, mapped or not
  uint64_t reservationBytes = 0;
  int ordinal = -2;  // cudaInvalidDeviceId

  bool isKnown() const { return region || reservationBase != 0; }
};

PointerInfo inspect(Driver& driver, CUdeviceptr address) {
  PointerInfo info;
  info.region = driver.memory().space().find(address);
  driver.virtualMemory().findReservation(address, &info.reservationBase, &info.reservationBytes);
  if (!info.region) return info;
  info.ordinal = info.region->device;
  if (info.ordinal < 0) {
    const ContextPtr context = driver.contexts().find(info.region->contextHandle);
    info.ordinal = context ? static_cast<int>(context->device().ordinal()) : 0;
  }
  return info;
}

template <typename T>
CUresult put(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

unsigned accessOf(const Region& region) {
  return region.isWritable   ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
         : region.isReadable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                             : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

// Writes one attribute; for an unknown address the value that means none. Booleans are 32 bits.
CUresult putAttribute(const PointerInfo& info, CUdeviceptr address, CUpointer_attribute attribute, void* data) {
  const Region none;
  const Region& region = info.region ? *info.region : none;
  const bool isHost = info.region && region.isHost();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(data, region.contextHandle);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, !info.isKnown() ? 0u : isHost ? unsigned{CU_MEMORYTYPE_HOST} : unsigned{CU_MEMORYTYPE_DEVICE});
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(data, info.isKnown() ? address : CUdeviceptr{0});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return put(data, isHost ? reinterpret_cast<void*>(address) : nullptr);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(data, region.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(data, region.isManaged ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(data, info.ordinal);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, CUdeviceptr{info.reservationBase ? info.reservationBase : region.base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, size_t{info.reservationBase ? info.reservationBytes : region.bytes});
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, info.region ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put(data, 0ull);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return put(data, info.region ? accessOf(region) : 0u);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(data, static_cast<void*>(nullptr));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put(data, size_t{region.bytes});
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return put(data, CUdeviceptr{region.base});
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return put(data, region.id);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return withDriver([&](Driver& driver) -> CUresult {
    const PointerInfo info = inspect(driver, ptr);
    if (!data || !info.isKnown()) return CUDA_ERROR_INVALID_VALUE;
    return putAttribute(info, ptr, attribute, data);
  });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (numAttributes == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
    const PointerInfo info = inspect(driver, ptr);
    for (unsigned i = 0; i < numAttributes; ++i) {
      if (!data[i]) return CUDA_ERROR_INVALID_VALUE;
      if (CUresult result = putAttribute(info, ptr, attributes[i], data[i])) return result;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!value || !inspect(driver, ptr).isKnown()) return CUDA_ERROR_INVALID_VALUE;
    // Copies keep their synchronization behaviour; nothing else can be set.
    return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // extern "C"
