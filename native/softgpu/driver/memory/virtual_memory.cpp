// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/virtual_memory.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "softgpu/driver/host/log.h"
#include "softgpu/driver/host/pages.h"

namespace millpond::softgpu {
namespace {

bool isRange(uint64_t address, uint64_t bytes) {
  return address != 0 && bytes != 0 && isAligned(address, kGranularity) && isAligned(bytes, kGranularity) &&
         bytes <= UINT64_MAX - address;
}

int protectionOf(CUmemAccess_flags access) {
  switch (access) {
    case CU_MEM_ACCESS_FLAGS_PROT_READ: return PROT_READ;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: return PROT_READ | PROT_WRITE;
    default: return PROT_NONE;
  }
}

bool failed(const char* what) {
  log(LogLevel::error, std::string(what) + ": " + std::strerror(errno));
  return true;
}

}  // namespace

CUresult VirtualMemory::reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t* address) {
  if (bytes == 0 || !isAligned(bytes, kGranularity)) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !std::has_single_bit(alignment)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t boundary = std::max(alignment, kGranularity);
  std::lock_guard lock(mutex_);
  uint64_t base = 0;
  if (hint != 0 && isAligned(hint, boundary) && mapPagesAt(hint, bytes, Protection::none)) base = hint;
  if (base == 0) base = mapPages(bytes, boundary, Protection::none);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_.emplace(base, bytes);
  *address = base;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unreserve(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto position = reservations_.find(address);
  if (position == reservations_.end() || position->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  reservations_.erase(position);
  unmapPages(address, bytes);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::create(PhysicalStore& store, Device& device, uint64_t bytes, bool isShareable,
                               CUmemGenericAllocationHandle* handle) {
  if (bytes == 0 || !isAligned(bytes, kGranularity)) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<uint64_t> offset = store.allocate(bytes);
  if (!offset) return CUDA_ERROR_OUT_OF_MEMORY;
  return open(std::make_shared<PhysicalMemory>(store, device, *offset, bytes, isShareable), handle);
}

CUresult VirtualMemory::open(std::shared_ptr<PhysicalMemory> memory, CUmemGenericAllocationHandle* handle) {
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  handles_.emplace(++lastHandle_, Handle{std::move(memory)});
  *handle = lastHandle_;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::share(CUmemGenericAllocationHandle handle, int* file) {
  std::lock_guard lock(mutex_);
  const auto position = handles_.find(handle);
  if (position == handles_.end() || !position->second.memory->isShareable()) return CUDA_ERROR_INVALID_VALUE;
  UniqueFd shared = position->second.memory->share();
  if (!shared) return CUDA_ERROR_OPERATING_SYSTEM;
  *file = shared.release();
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::retain(uint64_t address, CUmemGenericAllocationHandle* handle) {
  std::lock_guard lock(mutex_);
  auto mapping = mappings_.upper_bound(address);
  if (mapping == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --mapping;
  if (address - mapping->first >= mapping->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  // The handle itself may have been released; the memory lives on in its mapping, and so does the handle again.
  const auto position = handles_.find(mapping->second.handle);
  if (position != handles_.end()) {
    ++position->second.references;
  } else {
    handles_.emplace(mapping->second.handle, Handle{mapping->second.memory});
  }
  *handle = mapping->second.handle;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<PhysicalMemory> last;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  const auto position = handles_.find(handle);
  if (position == handles_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--position->second.references > 0) return CUDA_SUCCESS;
  last = std::move(position->second.memory);
  handles_.erase(position);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* properties) {
  std::lock_guard lock(mutex_);
  const auto position = handles_.find(handle);
  if (position == handles_.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = static_cast<int>(position->second.memory->device().ordinal());
  if (position->second.memory->isShareable())
    properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::map(uint64_t address, uint64_t bytes, uint64_t offset, CUmemGenericAllocationHandle handle) {
  if (!isRange(address, bytes) || !isAligned(offset, kGranularity)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  const auto position = handles_.find(handle);
  if (position == handles_.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<PhysicalMemory>& memory = position->second.memory;
  if (bytes > memory->bytes() || offset > memory->bytes() - bytes) return CUDA_ERROR_INVALID_VALUE;
  uint64_t base;
  uint64_t length;
  if (!lookUpReservation(address, &base, &length) || bytes > base + length - address) return CUDA_ERROR_INVALID_VALUE;

  Region region{.kind = Region::Kind::mapped,
                .base = address,
                .bytes = bytes,
                .device = static_cast<int>(memory->device().ordinal()),
                .isReadable = false,
                .isWritable = false};
  if (!memory_.space().add(region)) return CUDA_ERROR_INVALID_VALUE;
  void* mapped = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                        memory->fd(), static_cast<off_t>(memory->offset() + offset));
  if (mapped == MAP_FAILED) {
    failed("cannot map memory");
    memory_.space().remove(address, Region::Kind::mapped);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  mappings_.emplace(address, Mapping{memory, handle, bytes, CU_MEM_ACCESS_FLAGS_PROT_NONE});
  return CUDA_SUCCESS;
}

// The mappings that make up the range exactly, with the mutex held.
bool VirtualMemory::lookUpMappings(uint64_t address, uint64_t bytes, Mappings::iterator* first,
                                   Mappings::iterator* last) {
  if (!isRange(address, bytes)) return false;
  *first = *last = mappings_.find(address);
  uint64_t next = address;
  while (next < address + bytes) {
    if (*last == mappings_.end() || (*last)->first != next) return false;
    next += (*last)->second.bytes;
    ++*last;
  }
  return next == address + bytes;
}

CUresult VirtualMemory::unmap(uint64_t address, uint64_t bytes) {
  std::vector<Mapping> ended;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  Mappings::iterator first;
  Mappings::iterator last;
  if (!lookUpMappings(address, bytes, &first, &last)) return CUDA_ERROR_INVALID_VALUE;
  for (auto mapping = first; mapping != last; ++mapping) {
    memory_.space().remove(mapping->first, Region::Kind::mapped);
    ended.push_back(std::move(mapping->second));
  }
  mappings_.erase(first, last);
  memory_.quiescence().wait();
  // The addresses stay reserved.
  void* mapped = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED && failed("cannot unmap memory")) return CUDA_ERROR_OPERATING_SYSTEM;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::setAccess(uint64_t address, uint64_t bytes, int device, CUmemAccess_flags access) {
  std::lock_guard lock(mutex_);
  Mappings::iterator first;
  Mappings::iterator last;
  if (!lookUpMappings(address, bytes, &first, &last)) return CUDA_ERROR_INVALID_VALUE;
  for (auto mapping = first; mapping != last; ++mapping) {
    if (static_cast<int>(mapping->second.memory->device().ordinal()) != device) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (auto mapping = first; mapping != last; ++mapping) {
    if (!changeAccess(mapping->first, mapping->second, access)) return CUDA_ERROR_OPERATING_SYSTEM;
  }
  return CUDA_SUCCESS;
}

// Rights are removed before the pages lose them, and granted after the pages have them. Each level of access includes
// the lower ones.
bool VirtualMemory::changeAccess(uint64_t address, Mapping& mapping, CUmemAccess_flags access) {
  if (mapping.access == access) return true;
  const auto publish = [&] {
    memory_.space().setAccess(address, access != CU_MEM_ACCESS_FLAGS_PROT_NONE,
                              access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  };
  const bool isLess = access < mapping.access;
  if (isLess) {
    publish();
    memory_.quiescence().wait();
  }
  if (::mprotect(reinterpret_cast<void*>(address), mapping.bytes, protectionOf(access)) != 0) {
    return !failed("cannot change access to memory");
  }
  if (!isLess) publish();
  mapping.access = access;
  return true;
}

CUresult VirtualMemory::access(uint64_t address, int device, CUmemAccess_flags* access) {
  std::lock_guard lock(mutex_);
  auto mapping = mappings_.upper_bound(address);
  if (mapping == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --mapping;
  if (address - mapping->first >= mapping->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  const bool isOwner = static_cast<int>(mapping->second.memory->device().ordinal()) == device;
  *access = isOwner ? mapping->second.access : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

bool VirtualMemory::lookUpReservation(uint64_t address, uint64_t* base, uint64_t* bytes) const {
  auto position = reservations_.upper_bound(address);
  if (position == reservations_.begin()) return false;
  --position;
  if (address - position->first >= position->second) return false;
  *base = position->first;
  *bytes = position->second;
  return true;
}

bool VirtualMemory::findReservation(uint64_t address, uint64_t* base, uint64_t* bytes) {
  std::lock_guard lock(mutex_);
  return lookUpReservation(address, base, bytes);
}

}  // namespace millpond::softgpu
