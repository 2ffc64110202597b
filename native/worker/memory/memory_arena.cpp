// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/memory_arena.h"

#include <algorithm>
#include <utility>

#include "base/address_places.h"
#include "worker/device/sanitizer.h"

namespace millpond::worker {
namespace {

/// cudaMalloc promises 256; frameworks assume 512.
constexpr uint64_t kAlignment = 512;
/// Larger allocations get granules of their own.
constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
/// The driver's granularity is at least this on every device, and this is a multiple of the granularity on all known
/// ones.
constexpr uint64_t kGranule = uint64_t{2} << 20;
/// Reserved addresses per byte of the device, so that fragmentation of addresses never fails an allocation, whatever
/// the limit is.
constexpr uint64_t kAddressFactor = 8;
constexpr uint64_t kMinimumReservation = uint64_t{64} << 30;

constexpr uint64_t roundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

/// The address ranges for memory of processes come after these.
constexpr uint64_t kPlaces = (kPinnedPlaces.first - kDevicePlaces.first) / kDevicePlaces.step;

/// Reserves addresses in one of the places for memory of devices, where neither the system nor a driver puts anything by itself.
bool reservePlace(const Driver& driver, CUdevice device, uint64_t bytes, CUdeviceptr& base) {
  // The device's own range may be taken: by another vGPU of the same device, or by the end of a very large one.
  for (uint64_t i = 0; i < kPlaces; ++i) {
    const CUdeviceptr wish = kDevicePlaces.first + (static_cast<uint64_t>(device) + i) % kPlaces * kDevicePlaces.step;
    if (driver.cuMemAddressReserve(&base, bytes, 0, wish, 0) != CUDA_SUCCESS) return false;
    if (base == wish) return true;
    driver.cuMemAddressFree(base, bytes);
  }
  return false;
}

}  // namespace

bool MemoryArena::FreeRuns::take(uint64_t bytes, uint64_t& start) {
  for (auto run = runs_.begin(); run != runs_.end(); ++run) {
    if (run->second < bytes) continue;
    start = run->first;
    const uint64_t left = run->second - bytes;
    runs_.erase(run);
    if (left) runs_.emplace(start + bytes, left);
    return true;
  }
  return false;
}

void MemoryArena::FreeRuns::give(uint64_t start, uint64_t bytes) {
  auto next = runs_.lower_bound(start);
  if (next != runs_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      bytes += before->second;
      runs_.erase(before);
    }
  }
  if (next != runs_.end() && start + bytes == next->first) {
    bytes += next->second;
    runs_.erase(next);
  }
  runs_.emplace(start, bytes);
}

bool MemoryArena::FreeRuns::isOne(uint64_t start, uint64_t bytes) const {
  return runs_.size() == 1 && runs_.begin()->first == start && runs_.begin()->second == bytes;
}

MemoryArena::MemoryArena(const Driver& driver, CUdevice device, ClaimBudget& budget, std::vector<CUdevice> peers,
                         bool isShareable)
    : driver_(driver), device_(device), peers_(std::move(peers)), isShareable_(isShareable), budget_(budget) {}

CUmemAllocationProp MemoryArena::properties() const {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device_;
  if (isShareable_) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

CUresult MemoryArena::reserve() {
  const CUmemAllocationProp prop = properties();
  size_t granule = 0;
  if (CUresult rc = driver_.cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) return rc;
  granule_ = std::max<uint64_t>(granule, kGranule);
  size_t total = 0;
  if (CUresult rc = driver_.cuDeviceTotalMem_v2(&total, device_)) return rc;
  reserved_ = roundUp(std::max(std::max<uint64_t>(total, budget_.limitBytes()) * kAddressFactor, kMinimumReservation),
                      granule_);
  if (!reservePlace(driver_, device_, reserved_, base_))
    if (CUresult rc = driver_.cuMemAddressReserve(&base_, reserved_, 0, 0, 0)) return rc;
  addresses_.give(base_, reserved_);
  Sanitizer(driver_).manage(base_, reserved_);
  return CUDA_SUCCESS;
}

CUresult MemoryArena::mapRun(uint64_t bytes, CUdeviceptr& start, CUmemGenericAllocationHandle memory, uint64_t shared) {
  const auto charge = memory ? budget_.join(shared, bytes) : budget_.take(bytes);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = 0;
  if (!addresses_.take(bytes, address)) {
    budget_.give(*charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  start = address;
  const CUmemAllocationProp prop = properties();
  const bool isNew = memory == 0;
  CUresult rc = isNew ? driver_.cuMemCreate(&memory, bytes, &prop, 0) : CUDA_SUCCESS;
  if (rc == CUDA_SUCCESS) {
    rc = driver_.cuMemMap(start, bytes, 0, memory, 0);
    // The mapping keeps the memory alive from now on.
    if (isNew) driver_.cuMemRelease(memory);
    if (rc == CUDA_SUCCESS) {
      // Peer access of contexts does not apply to mapped memory, so all contexts get access from the beginning.
      std::vector<CUmemAccessDesc> access(1 + peers_.size());
      for (size_t i = 0; i < access.size(); ++i) {
        access[i].location = prop.location;
        if (i > 0) access[i].location.id = peers_[i - 1];
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      }
      rc = driver_.cuMemSetAccess(start, bytes, access.data(), access.size());
      if (rc != CUDA_SUCCESS) driver_.cuMemUnmap(start, bytes);
    }
  }
  if (rc != CUDA_SUCCESS) {
    addresses_.give(start, bytes);
    budget_.give(*charge);
    return rc;
  }
  runs_.emplace(start, Run{++lastRun_, *charge});
  return CUDA_SUCCESS;
}

CUresult MemoryArena::unmapRun(CUdeviceptr start, uint64_t bytes) {
  const CUresult rc = driver_.cuMemUnmap(start, bytes);
  if (rc != CUDA_SUCCESS) return rc;
  const auto run = runs_.find(start);
  budget_.give(run->second.charge);
  runs_.erase(run);
  addresses_.give(start, bytes);
  return CUDA_SUCCESS;
}

uint64_t MemoryArena::roundedBytes(uint64_t bytes) {
  return roundUp(bytes, bytes > kSmallBytes ? kGranule : kAlignment);
}

CUresult MemoryArena::allocate(uint64_t bytes, CUdeviceptr& address) {
  if (!base_)
    if (CUresult rc = reserve()) return rc;
  if (bytes == 0 || bytes > reserved_) return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  if (bytes > kSmallBytes) {
    const uint64_t rounded = roundUp(bytes, granule_);
    if (CUresult rc = mapRun(rounded, address)) return rc;
    allocations_.emplace(address, Allocation{rounded, 0});
    return CUDA_SUCCESS;
  }
  const uint64_t rounded = roundUp(bytes, kAlignment);
  for (auto& [start, slab] : slabs_) {
    uint64_t found = 0;
    if (!slab.free.take(rounded, found)) continue;
    address = found;
    allocations_.emplace(address, Allocation{rounded, start});
    return CUDA_SUCCESS;
  }
  CUdeviceptr start = 0;
  if (CUresult rc = mapRun(granule_, start)) return rc;
  Slab& slab = slabs_[start];
  slab.free.give(start + rounded, granule_ - rounded);
  address = start;
  allocations_.emplace(address, Allocation{rounded, start});
  return CUDA_SUCCESS;
}

CUresult MemoryArena::free(CUdeviceptr address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = found->second;
  allocations_.erase(found);
  if (!allocation.slab) return unmapRun(address - allocation.offset, allocation.bytes);
  const auto slab = slabs_.find(allocation.slab);
  slab->second.free.give(address, allocation.bytes);
  if (!slab->second.free.isOne(slab->first, granule_)) return CUDA_SUCCESS;
  const CUdeviceptr start = slab->first;
  slabs_.erase(slab);
  return unmapRun(start, granule_);
}

MemoryArena::Place MemoryArena::placeOf(CUdeviceptr address) const {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return {};
  const Allocation& allocation = found->second;
  const CUdeviceptr run = allocation.slab ? allocation.slab : address - allocation.offset;
  return {run, allocation.slab ? granule_ : allocation.bytes, runs_.find(run)->second.number};
}

uint64_t MemoryArena::share(CUdeviceptr address) {
  const auto run = runs_.find(placeOf(address).run);
  if (run == runs_.end()) return 0;
  budget_.share(run->second.charge);
  return run->second.charge.shared;
}

CUresult MemoryArena::adopt(CUmemGenericAllocationHandle memory, uint64_t shared, uint64_t runBytes, uint64_t offset,
                            CUdeviceptr& address) {
  if (!base_)
    if (CUresult rc = reserve()) return rc;
  if (runBytes == 0 || runBytes % granule_ || runBytes > reserved_ || offset >= runBytes)
    return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr start = 0;
  if (CUresult rc = mapRun(runBytes, start, memory, shared)) return rc;
  address = start + offset;
  allocations_.emplace(address, Allocation{runBytes, 0, offset});
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
