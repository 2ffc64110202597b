// SPDX-License-Identifier: Apache-2.0
// Device memory of the plain kind, pinned and registered host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/address_space.h"
#include "softgpu/driver/memory/quiescence.h"
#include "softgpu/driver/model/context.h"

namespace millpond::softgpu {

/// Alignment of cuMemAlloc, and the granularity in which kernels may access memory. In bytes.
inline constexpr uint64_t kAllocationAlignment = 512;

class Memory {
 public:
  AddressSpace& space() { return space_; }
  Quiescence& quiescence() { return quiescence_; }

  /// To be called once, before anything is allocated. `devices`: by ordinal. `guardBytes`: bytes behind an allocation that
  /// stay unused while programs are checked, so that an overrun does not reach another allocation; a multiple of a page.
  void open(std::vector<Device*> devices, uint64_t guardBytes) {
    devices_ = std::move(devices);
    guardBytes_ = guardBytes;
  }

  CUresult allocate(Context& context, uint64_t bytes, uint64_t* address);
  /// A module's variable. 0 if the device has no memory left.
  uint64_t allocateVariable(Context& context, uint64_t bytes, uint64_t alignment, bool isWritable);
  void releaseVariable(uint64_t address);
  /// Memory for malloc() in kernels, which the context keeps until it ends; empty if the device does not have that much
  /// left.
  std::shared_ptr<ptx::DeviceHeap> kernelHeap(Context& context);
  /// Waits for the context's work, as the real driver does.
  CUresult free(Context& context, uint64_t address);

  CUresult allocateHost(Context& context, uint64_t bytes, unsigned flags, void** address);
  CUresult freeHost(Context& context, void* address);
  CUresult registerHost(Context& context, void* address, uint64_t bytes, unsigned flags);
  CUresult unregisterHost(Context& context, void* address);

  /// Reclaims everything that a context which has ended still holds.
  void releaseOwnedBy(uint64_t context);

 private:
  uint64_t allocateRegion(Context& context, Region region);
  void release(const Region& region);

  AddressSpace space_;
  Quiescence quiescence_;
  std::vector<Device*> devices_;
  uint64_t guardBytes_ = 0;
};

}  // namespace millpond::softgpu
