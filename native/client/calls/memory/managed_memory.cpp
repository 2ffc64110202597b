// SPDX-License-Identifier: Apache-2.0
// Managed memory: device memory that is mirrored here. Advice about the location of pages is stored but has no effect.
#include <cstring>

#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/context.h"

namespace millpond::client::api {
namespace {

bool isManaged(Call& call, CUdeviceptr address, size_t bytes) {
  return call.remote().managed.visit(address, bytes, [](const ManagedMemory::Advice&) {});
}

/// The location that a device ordinal of the older calls means.
Place placeOf(CUdevice device) {
  if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult checkPlace(Call& call, const Place& place) {
  switch (place.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: {
      int32_t device = 0;
      return call.device(place.id, device);
    }
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult advise(Call& call, CUdeviceptr address, size_t bytes, CUmem_advise advice, const Place& place) {
  const bool needsPlace = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                          advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (needsPlace)
    if (const CUresult r = checkPlace(call, place); r != CUDA_SUCCESS) return r;
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  const bool known = call.remote().managed.change(address, bytes, [&](ManagedMemory::Advice& kept) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY: kept.readMostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY; break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: kept.preferred = place; break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: kept.preferred = {}; break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY: kept.accessedBy.insert(place); break;
      default: kept.accessedBy.erase(place); break;
    }
  });
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult prefetch(Call& call, Flavour flavour, CUdeviceptr address, size_t bytes, const Place& place,
                  CUstream hStream) {
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = checkPlace(call, place); r != CUDA_SUCCESS) return r;
  const bool known =
      call.remote().managed.change(address, bytes, [&](ManagedMemory::Advice& kept) { kept.prefetched = place; });
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// The value that the whole range has; `none` if it varies.
template <typename T, typename Get>
CUresult common(Call& call, CUdeviceptr address, size_t bytes, T none, Get get, T& out) {
  bool isFirst = true;
  const bool known = call.remote().managed.visit(address, bytes, [&](const ManagedMemory::Advice& advice) {
    const T value = get(advice);
    if (isFirst)
      out = value;
    else if (!(out == value))
      out = none;
    isFirst = false;
  });
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// A location in the form of the older attributes.
int ordinalOf(const Place& place) {
  if (place.type == CU_MEM_LOCATION_TYPE_DEVICE) return place.id;
  return place.type == CU_MEM_LOCATION_TYPE_NONE ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

CUresult rangeAttribute(Call& call, void* data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr address,
                        size_t bytes) {
  if (data == nullptr || dataSize == 0 || dataSize % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto* ints = static_cast<int*>(data);
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    std::set<Place> places;
    const CUresult r = common(
        call, address, bytes, std::set<Place>{}, [](const ManagedMemory::Advice& a) { return a.accessedBy; }, places);
    if (r != CUDA_SUCCESS) return r;
    auto each = places.begin();
    for (size_t i = 0; i < dataSize / sizeof(int); ++i)
      ints[i] = each != places.end() ? ordinalOf(*each++) : CU_DEVICE_INVALID;
    return CUDA_SUCCESS;
  }
  if (dataSize != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)
    return common(
        call, address, bytes, 0, [](const ManagedMemory::Advice& a) { return a.readMostly ? 1 : 0; }, *ints);
  Place place;
  const bool isPreferred = attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ||
                           attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE ||
                           attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID;
  const CUresult r = common(
      call, address, bytes, Place{},
      [&](const ManagedMemory::Advice& a) { return isPreferred ? a.preferred : a.prefetched; }, place);
  if (r != CUDA_SUCCESS) return r;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: *ints = ordinalOf(place); return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: *ints = static_cast<int>(place.type); return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: *ints = place.id; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

/// The location of each range of a batch: `indices[i]` is the first range of `places[i]`.
bool placeOfEach(size_t range, size_t count, const CUmemLocation* places, const size_t* indices, size_t numPlaces,
                 Place& out) {
  if (places == nullptr || indices == nullptr || numPlaces == 0 || numPlaces > count || indices[0] != 0) return false;
  for (size_t i = 1; i < numPlaces; ++i)
    if (indices[i] <= indices[i - 1] || indices[i] >= count) return false;
  size_t i = numPlaces - 1;
  while (indices[i] > range) --i;
  out = {places[i].type, places[i].id};
  return true;
}

CUresult checkBatch(Call& call, const CUdeviceptr* dptrs, const size_t* sizes, size_t count, unsigned long long flags) {
  if (dptrs == nullptr || sizes == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (!isManaged(call, dptrs[i], sizes[i])) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult prefetchBatch(const char* name, Flavour flavour, const CUdeviceptr* dptrs, const size_t* sizes, size_t count,
                       const CUmemLocation* places, const size_t* indices, size_t numPlaces, unsigned long long flags,
                       CUstream hStream) {
  Call call(name, Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = checkBatch(call, dptrs, sizes, count, flags); r != CUDA_SUCCESS) return r;
  for (size_t i = 0; i < count; ++i) {
    Place place;
    if (!placeOfEach(i, count, places, indices, numPlaces, place)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = prefetch(call, flavour, dptrs[i], sizes[i], place, hStream); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) noexcept {
  Call call("cuMemAllocManaged", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = call.remote().managedHeap.allocate(CallSink(call), bytesize, *dptr); r != CUDA_SUCCESS)
    return r;
  call.remote().memory.add({*dptr, bytesize, MemoryKind::kMirrored, call.context(), MemoryRun::kManaged, 0});
  call.remote().managed.add(*dptr, bytesize);
  return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(Flavour flavour, CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) noexcept {
  Call call("cuStreamAttachMemAsync", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  const auto run = call.remote().memory.find(dptr);
  if (!run || !(run->flags & MemoryRun::kManaged) || run->address != dptr) return CUDA_ERROR_INVALID_VALUE;
  return length == 0 || length <= run->bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) noexcept {
  Call call("cuMemAdvise", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  return advise(call, devPtr, count, advice, placeOf(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) noexcept {
  Call call("cuMemAdvise_v2", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  return advise(call, devPtr, count, advice, {location.type, location.id});
}

CUresult cuMemPrefetchAsync(Flavour flavour, CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) noexcept {
  Call call("cuMemPrefetchAsync", Needs::kAny);
  return prefetch(call, flavour, devPtr, count, placeOf(dstDevice), hStream);
}

CUresult cuMemPrefetchAsync_v2(Flavour flavour, CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) noexcept {
  Call call("cuMemPrefetchAsync_v2", Needs::kAny);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return prefetch(call, flavour, devPtr, count, {location.type, location.id}, hStream);
}

CUresult cuMemPrefetchBatchAsync(Flavour flavour, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                 unsigned long long flags, CUstream hStream) noexcept {
  return prefetchBatch("cuMemPrefetchBatchAsync", flavour, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                       numPrefetchLocs, flags, hStream);
}

CUresult cuMemDiscardBatchAsync(Flavour flavour, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) noexcept {
  Call call("cuMemDiscardBatchAsync", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  // Discarded memory may have any contents, so it keeps its present ones.
  return checkBatch(call, dptrs, sizes, count, flags);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(Flavour flavour, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                           unsigned long long flags, CUstream hStream) noexcept {
  return prefetchBatch("cuMemDiscardAndPrefetchBatchAsync", flavour, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                       numPrefetchLocs, flags, hStream);
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                size_t count) noexcept {
  Call call("cuMemRangeGetAttribute", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  return rangeAttribute(call, data, dataSize, attribute, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) noexcept {
  Call call("cuMemRangeGetAttributes", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numAttributes; ++i)
    if (const CUresult r = rangeAttribute(call, data[i], dataSizes[i], attributes[i], devPtr, count); r != CUDA_SUCCESS)
      return r;
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
