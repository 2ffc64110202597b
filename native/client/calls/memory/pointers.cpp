// SPDX-License-Identifier: Apache-2.0
// Queries about addresses, answered from this process's own allocations.
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/context.h"

namespace millpond::client::api {
namespace {

template <typename T>
CUresult store(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

using Reservation = VirtualMemory::Reservation;

/// This process's knowledge of an address.
struct Place {
  std::optional<MemoryRun> run;
  /// If it was mapped, its mapping with reservation and properties.
  std::optional<Reservation> reservation;
  unsigned long long handleTypes = 0;
  unsigned long long access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;

  bool isKnown() const { return run || reservation; }
};

unsigned long long handleTypesOf(const Call& call, uint64_t pool) {
  MemoryPools& books = call.remote().pools;
  const std::lock_guard lock(books.mutex);
  const MemoryPools::Pool* live = books.find(reinterpret_cast<CUmemoryPool>(pool));
  return live ? static_cast<unsigned long long>(live->handleTypes) : 0;
}

Place inspect(const Call& call, CUdeviceptr ptr) {
  Place place;
  place.run = call.remote().memory.find(ptr);
  if (place.run && place.run->pool != 0) place.handleTypes = handleTypesOf(call, place.run->pool);
  if (place.run && !(place.run->flags & MemoryRun::kMapped)) return place;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  place.reservation = vm.reservationAt(ptr);
  const VirtualMemory::Mapping* mapping = vm.mappingAt(ptr);
  if (!mapping) {
    place.access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    return place;
  }
  place.handleTypes = static_cast<unsigned long long>(mapping->memory->prop.requestedHandleTypes);
  const auto own = mapping->access.find(mapping->memory->prop.location.id);
  place.access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
  if (own != mapping->access.end()) place.access = static_cast<unsigned long long>(own->second);
  return place;
}

CUresult attribute(void* data, CUpointer_attribute which, CUdeviceptr ptr, const Place& place) {
  const std::optional<MemoryRun>& run = place.run;
  const bool isManaged = run && (run->flags & MemoryRun::kManaged);
  const bool onDevice = run ? run->kind == MemoryKind::kDevice : place.isKnown();
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      Context* context = run && !(run->flags & MemoryRun::kMapped) ? contextOf(run->context) : nullptr;
      return store<CUcontext>(data, context ? context->handle() : nullptr);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return store<unsigned>(
          data, !place.isKnown()
                    ? 0u
                    : static_cast<unsigned>(onDevice || isManaged ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return store<CUdeviceptr>(data, run ? ptr : 0);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      // Unknown addresses are ordinary memory of the program.
      return store<void*>(data, !onDevice ? reinterpret_cast<void*>(ptr) : nullptr);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return store<unsigned long long>(data, run ? run->id : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      const Context* context = run ? contextOf(run->context) : nullptr;
      return store<int>(data, context ? context->device() : -2);
    }
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      if (place.reservation) return store<CUdeviceptr>(data, place.reservation->address);
      return store<CUdeviceptr>(data, run ? run->address : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      if (place.reservation) return store<size_t>(data, place.reservation->bytes);
      return store<size_t>(data, run ? run->bytes : 0);
    case CU_POINTER_ATTRIBUTE_MAPPED: return store<bool>(data, run.has_value());
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return store<unsigned>(data, run && run->isShareable() ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return store<bool>(data, false);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return store<unsigned>(data, isManaged ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return store<unsigned long long>(data, place.handleTypes);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return store<unsigned long long>(data, run ? place.access : 0);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return store<CUmemoryPool>(data, reinterpret_cast<CUmemoryPool>(run ? run->pool : 0));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return store<size_t>(data, run ? run->bytes : 0);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return store<void*>(data, reinterpret_cast<void*>(run ? run->address : 0));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return store<unsigned long long>(data, run ? run->id : 0);
    default:
      return which > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ? CUDA_ERROR_INVALID_VALUE
                                                                   : CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr ptr) noexcept {
  Call call("cuPointerGetAttribute", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const Place place = inspect(call, ptr);
  if (data == nullptr || !place.isKnown()) return CUDA_ERROR_INVALID_VALUE;
  return attribute(data, which, ptr, place);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) noexcept {
  Call call("cuPointerGetAttributes", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Place place = inspect(call, ptr);
  for (unsigned i = 0; i < numAttributes; ++i)
    if (const CUresult r = attribute(data[i], attributes[i], ptr, place); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr ptr) noexcept {
  Call call("cuPointerSetAttribute", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (value == nullptr || !inspect(call, ptr).isKnown()) return CUDA_ERROR_INVALID_VALUE;
  // The driver continues copies after the call only for pinned memory, and those wait for nothing that this setting
  // could change.
  return which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace millpond::client::api
