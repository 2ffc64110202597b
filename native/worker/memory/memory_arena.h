// SPDX-License-Identifier: Apache-2.0
// The device memory of one vGPU: addresses reserved once, with physical memory mapped and unmapped under them, never
// more than the vGPU's limit. Remaining memory is freed with the process, like this object.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker/claim/claim_budget.h"
#include "worker/device/driver.h"

namespace millpond::worker {

class MemoryArena {
 public:
  /// `budget` bounds the physical memory, rounded down to the driver's granularity.
  /// `peers`: other devices of the session that can reach this one's memory. `isShareable`: it can be shared as files.
  MemoryArena(const Driver& driver, CUdevice device, ClaimBudget& budget, std::vector<CUdevice> peers = {},
              bool isShareable = false);
  MemoryArena(const MemoryArena&) = delete;
  MemoryArena& operator=(const MemoryArena&) = delete;

  /// CUDA_ERROR_OUT_OF_MEMORY if the limit or the device has no room.
  CUresult allocate(uint64_t bytes, CUdeviceptr& address);
  /// The arena memory that an allocation of that many bytes takes, excluding the granule of small ones. Less than
  /// `bytes` on overflow.
  static uint64_t roundedBytes(uint64_t bytes);
  /// Whether `address` is the start of an allocation.
  bool owns(CUdeviceptr address) const { return allocations_.contains(address); }
  size_t allocations() const { return allocations_.size(); }
  /// Its address range; none before the first allocation.
  CUdeviceptr base() const { return base_; }
  uint64_t reserved() const { return base_ ? reserved_ : 0; }
  /// Frees an allocation. Nothing on the device may use it any more.
  CUresult free(CUdeviceptr address);

  /// The position of an allocation in physical memory, its own or shared by small ones.
  struct Place {
    CUdeviceptr run = 0;  ///< where that is mapped
    uint64_t runBytes = 0;
    uint64_t number = 0;  ///< of that memory; never reused
  };
  Place placeOf(CUdeviceptr address) const;
  /// Allows other sessions to open the physical memory of an allocation; returns the number under which it counts once.
  uint64_t share(CUdeviceptr address);
  /// Maps memory of `runBytes` that the driver allocated elsewhere; the part at `offset` becomes an allocation. It
  /// counts like any other, or once for all sharers by the number under which it is shared; 0: none.
  CUresult adopt(CUmemGenericAllocationHandle memory, uint64_t shared, uint64_t runBytes, uint64_t offset,
                 CUdeviceptr& address);

 private:
  /// Free runs by start address, neighbours merged.
  class FreeRuns {
   public:
    bool take(uint64_t bytes, uint64_t& start);
    void give(uint64_t start, uint64_t bytes);
    bool isOne(uint64_t start, uint64_t bytes) const;

   private:
    std::map<uint64_t, uint64_t> runs_;
  };
  /// One granule cut into small allocations.
  struct Slab {
    FreeRuns free;
  };
  struct Allocation {
    uint64_t bytes;
    CUdeviceptr slab;     ///< 0: has mapped memory of its own
    uint64_t offset = 0;  ///< in that
  };

  CUresult reserve();
  CUmemAllocationProp properties() const;
  /// `memory`: exists already; 0: new memory.
  CUresult mapRun(uint64_t bytes, CUdeviceptr& start, CUmemGenericAllocationHandle memory = 0, uint64_t shared = 0);
  CUresult unmapRun(CUdeviceptr start, uint64_t bytes);

  const Driver& driver_;
  CUdevice device_;
  std::vector<CUdevice> peers_;
  const bool isShareable_;
  uint64_t granule_ = 0;
  ClaimBudget& budget_;
  CUdeviceptr base_ = 0;
  uint64_t reserved_ = 0;
  FreeRuns addresses_;
  struct Run {
    uint64_t number;
    ClaimBudget::Charge charge;
  };
  std::map<CUdeviceptr, Run> runs_;  ///< mappings, by address
  uint64_t lastRun_ = 0;
  std::map<CUdeviceptr, Slab> slabs_;
  std::map<CUdeviceptr, Allocation> allocations_;
};

}  // namespace millpond::worker
