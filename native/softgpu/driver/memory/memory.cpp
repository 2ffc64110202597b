// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/memory.h"

#include "softgpu/driver/host/pages.h"
#include "softgpu/driver/memory/kernel_heap.h"
#include "softgpu/driver/model/device.h"

namespace millpond::softgpu {

uint64_t Memory::allocateRegion(Context& context, Region region) {
  const uint64_t pages = roundUp(region.bytes, kPageBytes);
  if (pages == 0 || !context.device().charge(pages)) return 0;
  region.base =
      mapPages(pages + guardBytes_, pages >= kHugePageBytes ? kHugePageBytes : kPageBytes, Protection::readWrite);
  region.reach = roundUp(region.bytes, kAllocationAlignment);
  region.device = static_cast<int>(context.device().ordinal());
  region.context = context.id();
  region.contextHandle = context.handle();
  if (region.base != 0 && space_.add(region)) return region.base;
  if (region.base != 0) unmapPages(region.base, pages + guardBytes_);
  context.device().release(pages);
  return 0;
}

CUresult Memory::allocate(Context& context, uint64_t bytes, uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t base = allocateRegion(context, {.kind = Region::Kind::allocated, .bytes = bytes});
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = base;
  return CUDA_SUCCESS;
}

uint64_t Memory::allocateVariable(Context& context, uint64_t bytes, uint64_t alignment, bool isWritable) {
  if (alignment > kPageBytes) return 0;
  return allocateRegion(context, {.kind = Region::Kind::variable, .bytes = bytes, .isWritable = isWritable});
}

std::shared_ptr<ptx::DeviceHeap> Memory::kernelHeap(Context& context) {
  return context.kernelHeap([&](uint64_t bytes) {
    const uint64_t base = allocateRegion(context, {.kind = Region::Kind::heap, .bytes = bytes});
    return std::make_shared<KernelHeap>(base, base != 0 ? bytes : 0);
  });
}

void Memory::releaseVariable(uint64_t address) {
  RegionPtr region = space_.remove(address, Region::Kind::variable);
  // A context that has ended has already reclaimed its memory.
  if (!region) return;
  quiescence_.wait();
  release(*region);
}

CUresult Memory::free(Context& context, uint64_t address) {
  if (address == 0) return CUDA_SUCCESS;
  const RegionPtr found = space_.find(address);
  if (!found || found->base != address || found->kind != Region::Kind::allocated) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult fault = context.synchronize()) return fault;
  RegionPtr region = space_.remove(address, Region::Kind::allocated);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  quiescence_.wait();
  release(*region);
  return CUDA_SUCCESS;
}

CUresult Memory::allocateHost(Context& context, uint64_t bytes, unsigned flags, void** address) {
  constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *address = nullptr;
    return CUDA_SUCCESS;
  }
  const uint64_t pages = roundUp(bytes, kPageBytes);
  if (pages == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t base = mapPages(pages, pages >= kHugePageBytes ? kHugePageBytes : kPageBytes, Protection::readWrite);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool added = space_.add({.kind = Region::Kind::host,
                                 .base = base,
                                 .bytes = bytes,
                                 .reach = pages,
                                 .context = context.id(),
                                 .contextHandle = context.handle(),
                                 .hostFlags = flags});
  if (!added) {
    unmapPages(base, pages);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<void*>(base);
  return CUDA_SUCCESS;
}

CUresult Memory::freeHost(Context& context, void* address) {
  const auto base = reinterpret_cast<uint64_t>(address);
  const RegionPtr found = space_.find(base);
  if (!found || found->base != base || found->kind != Region::Kind::host) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult fault = context.synchronize()) return fault;
  RegionPtr region = space_.remove(base, Region::Kind::host);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  quiescence_.wait();
  release(*region);
  return CUDA_SUCCESS;
}

CUresult Memory::registerHost(Context& context, void* address, uint64_t bytes, unsigned flags) {
  constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
  const auto base = reinterpret_cast<uint64_t>(address);
  if (!address || bytes == 0 || bytes > UINT64_MAX - base) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_MEMHOSTREGISTER_IOMEMORY) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  if (!isMapped(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool added = space_.add({.kind = Region::Kind::registered,
                                 .base = base,
                                 .bytes = bytes,
                                 .context = context.id(),
                                 .contextHandle = context.handle(),
                                 .isWritable = !(flags & CU_MEMHOSTREGISTER_READ_ONLY),
                                 .hostFlags = flags});
  return added ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult Memory::unregisterHost(Context& context, void* address) {
  const auto base = reinterpret_cast<uint64_t>(address);
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  const RegionPtr found = space_.find(base);
  if (!found || found->base != base || found->kind != Region::Kind::registered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (CUresult fault = context.synchronize()) return fault;
  if (!space_.remove(base, Region::Kind::registered)) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  quiescence_.wait();
  return CUDA_SUCCESS;
}

void Memory::releaseOwnedBy(uint64_t context) {
  const std::vector<RegionPtr> regions = space_.removeOwnedBy(context);
  if (regions.empty()) return;
  quiescence_.wait();
  for (const RegionPtr& region : regions) release(*region);
}

// Returns the pages of a region that nothing can find or access any more.
void Memory::release(const Region& region) {
  if (region.kind == Region::Kind::registered) return;
  const uint64_t pages = roundUp(region.bytes, kPageBytes);
  // Host memory has no guard.
  unmapPages(region.base, pages + (region.device >= 0 ? guardBytes_ : 0));
  if (region.device >= 0) devices_[static_cast<size_t>(region.device)]->release(pages);
}

}  // namespace millpond::softgpu
