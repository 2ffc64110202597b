// SPDX-License-Identifier: Apache-2.0
// The driver's virtual-memory calls: reserved addresses, memory mapped into them, and access rights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/memory/physical_memory.h"

namespace millpond::softgpu {

/// Sizes and addresses of the virtual-memory calls are multiples of this. In bytes.
inline constexpr uint64_t kGranularity = uint64_t{2} << 20;

class VirtualMemory {
 public:
  explicit VirtualMemory(Memory& memory) : memory_(memory) {}

  /// `hint` is used if it is free; otherwise the system chooses.
  CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t* address);
  CUresult unreserve(uint64_t address, uint64_t bytes);

  CUresult create(PhysicalStore& store, Device& device, uint64_t bytes, bool isShareable,
                  CUmemGenericAllocationHandle* handle);
  /// A file that represents the memory, also in other processes.
  CUresult share(CUmemGenericAllocationHandle handle, int* file);
  /// A handle of the memory that a file represents.
  CUresult open(std::shared_ptr<PhysicalMemory> memory, CUmemGenericAllocationHandle* handle);
  CUresult retain(uint64_t address, CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* properties);

  CUresult map(uint64_t address, uint64_t bytes, uint64_t offset, CUmemGenericAllocationHandle handle);
  CUresult unmap(uint64_t address, uint64_t bytes);
  /// Only the memory's own device can be given access.
  CUresult setAccess(uint64_t address, uint64_t bytes, int device, CUmemAccess_flags access);
  CUresult access(uint64_t address, int device, CUmemAccess_flags* access);

  /// The reservation that contains `address`; false if there is none.
  bool findReservation(uint64_t address, uint64_t* base, uint64_t* bytes);

 private:
  struct Handle {
    std::shared_ptr<PhysicalMemory> memory;
    uint64_t references = 1;
  };
  struct Mapping {
    std::shared_ptr<PhysicalMemory> memory;
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
    CUmemAccess_flags access;
  };
  using Mappings = std::map<uint64_t, Mapping>;

  bool lookUpReservation(uint64_t address, uint64_t* base, uint64_t* bytes) const;
  bool lookUpMappings(uint64_t address, uint64_t bytes, Mappings::iterator* first, Mappings::iterator* last);
  bool changeAccess(uint64_t address, Mapping& mapping, CUmemAccess_flags access);

  Memory& memory_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> reservations_;  // base to length
  Mappings mappings_;                          // by base
  std::map<CUmemGenericAllocationHandle, Handle> handles_;
  CUmemGenericAllocationHandle lastHandle_ = 0;
};

}  // namespace millpond::softgpu
