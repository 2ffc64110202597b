// SPDX-License-Identifier: Apache-2.0
// The memory of sparse and deferred arrays.
#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/state/arrays.h"

namespace millpond::client::api {
namespace {

/// Replaces the program's numbers with the session's. Arrays already have session numbers. The memory's lock is held.
CUresult translate(Call& call, CUarrayMapInfo& entry) {
  const bool isMipmapped = entry.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (!isMipmapped && entry.resourceType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  const void* array =
      isMipmapped ? static_cast<void*>(entry.resource.mipmap) : static_cast<void*>(entry.resource.array);
  uint64_t wire = 0;
  const HandleKind kind = isMipmapped ? HandleKind::kMipmappedArray : HandleKind::kArray;
  if (const CUresult r = call.handle(kind, array, wire); r != CUDA_SUCCESS) return r;
  constexpr unsigned kBare = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  const auto info = call.remote().arrays.find(array);
  if (!info || info->isPart || !(info->desc.Flags & kBare)) return CUDA_ERROR_INVALID_VALUE;

  if (!std::has_single_bit(entry.deviceBitMask)) return CUDA_ERROR_INVALID_VALUE;
  int32_t device = 0;
  if (const CUresult r = call.device(std::countr_zero(entry.deviceBitMask), device); r != CUDA_SUCCESS) return r;
  entry.deviceBitMask = 1u << device;

  if (entry.flags != 0 || entry.reserved[0] != 0 || entry.reserved[1] != 0) return CUDA_ERROR_INVALID_VALUE;
  if (entry.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
    return entry.memHandle.memHandle == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (entry.memOperationType != CU_MEM_OPERATION_TYPE_MAP || entry.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC)
    return CUDA_ERROR_INVALID_VALUE;
  const VirtualMemory::Memory* const memory = call.remote().virtualMemory.find(entry.memHandle.memHandle);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  entry.memHandle.memHandle = memory->wire;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemMapArrayAsync(Flavour flavour, CUarrayMapInfo* mapInfoList, unsigned int count,
                            CUstream hStream) noexcept {
  Call call("cuMemMapArrayAsync", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (mapInfoList == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  cmd::ArrayMap wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  std::vector<CUarrayMapInfo> entries(mapInfoList, mapInfoList + count);
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  for (CUarrayMapInfo& entry : entries)
    if (const CUresult r = translate(call, entry); r != CUDA_SUCCESS) return r;
  constexpr size_t kMost = cmd::kMaxTailBytes / sizeof(CUarrayMapInfo);
  for (size_t first = 0; first < entries.size(); first += kMost) {
    const std::span some = std::span(entries).subspan(first, std::min(kMost, entries.size() - first));
    cmd::ArrayMapReply reply{};
    if (const CUresult r = call.wait(wire, reply, std::as_bytes(some)); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
