// SPDX-License-Identifier: Apache-2.0
// The device memory of one vGPU: addresses reserved once, physical memory mapped and unmapped under them, never more of
// it than the vGPU's limit. What is left goes with the process, and so does this object.
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

  /// CUDA_ERROR_OUT_OF_MEMORY when the limit or the device has no room.
  CUresult allocate(uint64_t bytes, CUdeviceptr& address);
  /// What an allocation of that many bytes takes of the arena, but for the granule in which small ones lie. Less than
  /// `bytes` when that is no number.
  static uint64_t roundedBytes(uint64_t bytes);
  /// Whether `address` is the start of an allocation.
  bool owns(CUdeviceptr address) const { return allocations_.contains(address); }
  size_t allocations() const { return allocations_.size(); }
  /// Where its addresses begin, and how many there are; none before the first allocation.
  CUdeviceptr base() const { return base_; }
  uint64_t reserved() const { return base_ ? reserved_ : 0; }
  /// Gives an allocation back. Nothing on the device may use it any more.
  CUresult free(CUdeviceptr address);

  /// Where an allocation lies in physical memory of its own, or with small ones.
  struct Place {
    CUdeviceptr run = 0;  ///< where that is mapped
    uint64_t runBytes = 0;
    uint64_t number = 0;  ///< of that memory; no other has had it, or will
  };
  Place placeOf(CUdeviceptr address) const;
  /// The physical memory of an allocation can be opened by other sessions from here on: under which number it counts once.
  uint64_t share(CUdeviceptr address);
  /// Maps memory of `runBytes` that the driver has made elsewhere; what is at `offset` in it becomes an allocation. It
  /// counts as any other, or once for all that have it, by the number under which it is shared; 0: none.
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
  /// `memory`: there is already; 0: new memory.
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
  std::map<CUdeviceptr, Run> runs_;  ///< what is mapped, by where it is
  uint64_t lastRun_ = 0;
  std::map<CUdeviceptr, Slab> slabs_;
  std::map<CUdeviceptr, Allocation> allocations_;
};

}  // namespace millpond::worker
