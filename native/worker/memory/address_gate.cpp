// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/address_gate.h"

#include <algorithm>
#include <array>

namespace millpond::worker {
namespace {

/// Whether [address, address + bytes) is within [begin, begin + size).
bool isInside(uint64_t address, uint64_t bytes, uint64_t begin, uint64_t size) {
  return address >= begin && address - begin <= size && bytes <= size - (address - begin);
}

}  // namespace

bool Box::fill() {
  const bool hasRows = height > 1 || depth > 1 || y || z;
  if (hasRows && pitch == 0 && __builtin_add_overflow(x, width, &pitch)) return false;
  return !hasRows || rows != 0 || !__builtin_add_overflow(y, height, &rows);
}

std::optional<Box::Extent> Box::extent() const {
  if (width == 0 || height == 0 || depth == 0) return std::nullopt;
  uint64_t rowEnd = 0, lastRow = 0;
  if (__builtin_add_overflow(x, width, &rowEnd) || __builtin_add_overflow(y, height, &lastRow)) return std::nullopt;
  if (((height > 1 || depth > 1) && pitch < rowEnd) || (depth > 1 && rows < lastRow)) return std::nullopt;
  Extent out;
  // A copy of one row has no pitch.
  out.rowStride = height > 1 || depth > 1 || y || z ? pitch : width;
  uint64_t slices = 0, lines = 0, before = 0, rest = 0;
  if (__builtin_mul_overflow(out.rowStride, rows, &out.sliceStride) ||
      __builtin_mul_overflow(out.sliceStride, depth - 1, &slices) ||
      __builtin_mul_overflow(out.rowStride, height - 1, &lines) || __builtin_add_overflow(slices, lines, &out.bytes) ||
      __builtin_add_overflow(out.bytes, width, &out.bytes) || __builtin_mul_overflow(out.sliceStride, z, &before) ||
      __builtin_mul_overflow(out.rowStride, y, &rest) || __builtin_add_overflow(before, rest, &out.offset) ||
      __builtin_add_overflow(out.offset, x, &out.offset))
    return std::nullopt;
  return out;
}

bool AddressGate::isKnownDevice(uint64_t address, uint64_t bytes) const {
  for (const auto& arena : arenas_)
    if (isInside(address, bytes, arena->base(), arena->reserved())) return true;
  if (virtualMemory_.isReserved(address, bytes)) return true;
  const auto behind = graphMemory_.upper_bound(address);
  if (behind == graphMemory_.begin()) return false;
  const auto& [begin, allocation] = *std::prev(behind);
  const auto alive = allocation.lock();
  return alive && isInside(address, bytes, begin, alive->bytes);
}

CUresult AddressGate::isDriversDevice(uint64_t address, uint64_t bytes) const {
  CUmemorytype type{};
  CUdeviceptr begin = 0;
  size_t size = 0;
  unsigned isManaged = 0;
  std::array<CUpointer_attribute, 4> wanted{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                            CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  std::array<void*, 4> told{&type, &begin, &size, &isManaged};
  if (CUresult rc = driver_.cuPointerGetAttributes(wanted.size(), wanted.data(), told.data(), address)) {
    // The driver reports this for an address that it does not know; a driver without the query knows none.
    return rc == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_INVALID_VALUE : rc;
  }
  const bool isDevice = type == CU_MEMORYTYPE_DEVICE || isManaged != 0;
  return isDevice && isInside(address, bytes, begin, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult AddressGate::device(wire::Address address, uint64_t bytes, SessionRange& out) const {
  out = {};
  if (bytes == 0 || address.value_ == 0) return CUDA_SUCCESS;
  if (!isKnownDevice(address.value_, bytes))
    if (CUresult rc = isDriversDevice(address.value_, bytes)) return rc;
  out = {address.value_, bytes, false};
  return CUDA_SUCCESS;
}

CUresult AddressGate::host(wire::Address address, uint64_t bytes, SessionRange& out, bool isRecorded) {
  out = {};
  if (bytes == 0) return CUDA_SUCCESS;
  if (!hostRuns_.contains(address.value_, bytes, isRecorded || isCapturing_())) return CUDA_ERROR_INVALID_VALUE;
  out = {address.value_, bytes, true};
  return CUDA_SUCCESS;
}

CUresult AddressGate::reach(wire::Address address, uint64_t bytes, SessionRange& out, bool isRecorded) {
  if (bytes != 0 && !isKnownDevice(address.value_, bytes) && host(address, bytes, out, isRecorded) == CUDA_SUCCESS)
    return CUDA_SUCCESS;
  return device(address, bytes, out);
}

CUresult AddressGate::reach(const Box& box, SessionRange& out, bool isRecorded) {
  out = {};
  const auto extent = box.extent();
  uint64_t begin = 0;
  if (!extent || __builtin_add_overflow(box.address.value_, extent->offset, &begin)) return CUDA_ERROR_INVALID_VALUE;
  return reach(wire::Address(begin), extent->bytes, out, isRecorded);
}

bool AddressGate::reachesBase(const Box& box, const SessionRange& range) {
  SessionRange base;
  return box.address.value_ != 0 && reach(box.address, 1, base, true) == CUDA_SUCCESS &&
         base.isHost() == range.isHost();
}

}  // namespace millpond::worker
