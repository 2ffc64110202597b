// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/virtual_memory.h"

#include <iterator>

#include "base/log.h"

namespace millpond::worker {
namespace {

bool overflows(uint64_t address, uint64_t bytes) { return bytes > UINT64_MAX - address; }

void tellFailure(const char* what, CUresult rc) {
  if (rc) log(LogLevel::Warn, "%s failed with %d", what, static_cast<int>(rc));
}

}  // namespace

CUresult VirtualMemory::reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr hint, CUdeviceptr& address) {
  if (CUresult rc = driver_.cuMemAddressReserve(&address, bytes, alignment, hint, 0)) return rc;
  reservations_.emplace(address, bytes);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unreserve(CUdeviceptr address, uint64_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto inside = mappings_.lower_bound(address);
  if (inside != mappings_.end() && inside->first - address < bytes) return CUDA_ERROR_INVALID_VALUE;
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

void VirtualMemory::freeAddresses(CUdeviceptr address, uint64_t bytes) {
  tellFailure("freeing reserved addresses", driver_.cuMemAddressFree(address, bytes));
}

CUresult VirtualMemory::create(uint64_t memory, size_t device, uint64_t bytes, const CUmemAllocationProp& prop,
                               bool& isNew) {
  isNew = !memories_.contains(memory);
  if (!isNew) return CUDA_ERROR_INVALID_VALUE;
  const auto charge = budgets_[device].take(bytes);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult rc = driver_.cuMemCreate(&handle, bytes, &prop, 0)) {
    budgets_[device].give(*charge);
    return rc;
  }
  memories_.emplace(memory, Memory{handle, device, *charge, 0, false});
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::adopt(uint64_t memory, size_t device, uint64_t bytes, CUmemGenericAllocationHandle handle,
                              uint64_t shared) {
  const auto charge = budgets_[device].join(shared, bytes);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  memories_.emplace(memory, Memory{handle, device, *charge, 0, false});
  return CUDA_SUCCESS;
}

uint64_t VirtualMemory::share(uint64_t memory) {
  const auto found = memories_.find(memory);
  if (found == memories_.end() || found->second.released) return 0;
  budgets_[found->second.device].share(found->second.charge);
  return found->second.charge.shared;
}

std::optional<VirtualMemory::View> VirtualMemory::find(uint64_t memory) const {
  const auto found = memories_.find(memory);
  if (found == memories_.end() || found->second.released) return std::nullopt;
  return View{found->second.handle, found->second.device, found->second.charge.bytes};
}

bool VirtualMemory::isReserved(CUdeviceptr address, uint64_t bytes) const {
  if (overflows(address, bytes)) return false;
  auto run = reservations_.upper_bound(address);
  if (run == reservations_.begin()) return false;
  --run;
  if (address - run->first >= run->second) return false;
  const CUdeviceptr end = address + bytes;
  CUdeviceptr covered = run->first + run->second;
  while (covered < end) {
    run = reservations_.find(covered);
    if (run == reservations_.end()) return false;
    covered += run->second;
  }
  return true;
}

CUresult VirtualMemory::release(uint64_t memory) {
  const auto found = memories_.find(memory);
  if (found == memories_.end() || found->second.released) return CUDA_ERROR_INVALID_VALUE;
  found->second.released = true;
  const CUresult rc = driver_.cuMemRelease(found->second.handle);
  dropIfUnused(found);
  return rc;
}

void VirtualMemory::dropIfUnused(std::map<uint64_t, Memory>::iterator memory) {
  if (!memory->second.released || memory->second.mappings) return;
  budgets_[memory->second.device].give(memory->second.charge);
  memories_.erase(memory);
}

CUresult VirtualMemory::map(CUdeviceptr address, uint64_t bytes, uint64_t offset, uint64_t memory) {
  const auto found = memories_.find(memory);
  if (found == memories_.end() || found->second.released) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0 || overflows(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t whole = found->second.charge.bytes;
  if (offset > whole || bytes > whole - offset) return CUDA_ERROR_INVALID_VALUE;
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  const uint64_t inside = address - reservation->first;
  if (inside >= reservation->second || bytes > reservation->second - inside) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings_.begin())
    if (const auto before = std::prev(next); address - before->first < before->second.bytes)
      return CUDA_ERROR_INVALID_VALUE;
  if (CUresult rc = driver_.cuMemMap(address, bytes, offset, found->second.handle, 0)) return rc;
  mappings_.emplace(address, Mapping{bytes, memory});
  ++found->second.mappings;
  return CUDA_SUCCESS;
}

bool VirtualMemory::find(CUdeviceptr address, uint64_t bytes, Mappings::iterator& first, Mappings::iterator& last) {
  if (bytes == 0 || overflows(address, bytes)) return false;
  first = last = mappings_.find(address);
  CUdeviceptr next = address;
  while (next < address + bytes) {
    if (last == mappings_.end() || last->first != next) return false;
    next += last->second.bytes;
    ++last;
  }
  return next == address + bytes;
}

CUresult VirtualMemory::unmap(CUdeviceptr address, uint64_t bytes, std::vector<uint64_t>& memories) {
  Mappings::iterator first, last;
  if (!find(address, bytes, first, last)) return CUDA_ERROR_INVALID_VALUE;
  for (auto each = first; each != last; ++each) memories.push_back(each->second.memory);
  mappings_.erase(first, last);
  return CUDA_SUCCESS;
}

void VirtualMemory::unmapPages(CUdeviceptr address, uint64_t bytes) {
  tellFailure("unmapping memory", driver_.cuMemUnmap(address, bytes));
}

std::optional<CUmemGenericAllocationHandle> VirtualMemory::hold(uint64_t memory) {
  const auto found = memories_.find(memory);
  if (found == memories_.end() || found->second.released) return std::nullopt;
  ++found->second.mappings;
  return found->second.handle;
}

void VirtualMemory::forget(const std::vector<uint64_t>& memories) {
  for (const uint64_t each : memories) {
    const auto memory = memories_.find(each);
    --memory->second.mappings;
    dropIfUnused(memory);
  }
}

CUresult VirtualMemory::setAccess(CUdeviceptr address, uint64_t bytes, std::span<const CUmemAccessDesc> access) {
  Mappings::iterator first, last;
  if (!find(address, bytes, first, last)) return CUDA_ERROR_INVALID_VALUE;
  return driver_.cuMemSetAccess(address, bytes, access.data(), access.size());
}

}  // namespace millpond::worker
