// SPDX-License-Identifier: Apache-2.0
// The reservations, allocations and mappings of a session's virtual-memory calls. All values from the client are
// checked against it, so no session reaches the addresses of its worker's own arenas.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "worker/claim/claim_budget.h"
#include "worker/device/driver.h"

namespace millpond::worker {

class VirtualMemory {
 public:
  /// `budgets`: of each device of the session.
  VirtualMemory(const Driver& driver, std::deque<ClaimBudget>& budgets) : driver_(driver), budgets_(budgets) {}
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  CUresult reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr hint, CUdeviceptr& address);
  /// Removes a reservation from the table; `freeAddresses` returns it to the driver.
  CUresult unreserve(CUdeviceptr address, uint64_t bytes);
  void freeAddresses(CUdeviceptr address, uint64_t bytes);

  /// `device`: ordinal in the session. CUDA_ERROR_OUT_OF_MEMORY if the limit or the device has no room. `isNew` is
  /// false if memory of that number exists already.
  CUresult create(uint64_t memory, size_t device, uint64_t bytes, const CUmemAllocationProp& prop, bool& isNew);
  /// Adopts memory that another session created, as MemoryArena::adopt does.
  CUresult adopt(uint64_t memory, size_t device, uint64_t bytes, CUmemGenericAllocationHandle handle, uint64_t shared);
  /// As MemoryArena::share.
  uint64_t share(uint64_t memory);
  bool empty() const { return reservations_.empty() && memories_.empty() && mappings_.empty(); }
  bool has(uint64_t memory) const { return memories_.contains(memory); }
  CUresult release(uint64_t memory);
  /// The record of memory that is not released.
  struct View {
    CUmemGenericAllocationHandle handle = 0;
    size_t device = 0;
    uint64_t bytes = 0;
  };
  std::optional<View> find(uint64_t memory) const;
  /// Whether all of that is in reserved addresses of the session, possibly in several consecutive ranges.
  bool isReserved(CUdeviceptr address, uint64_t bytes) const;

  CUresult map(CUdeviceptr address, uint64_t bytes, uint64_t offset, uint64_t memory);
  /// Removes the mappings that make up the range from the table and returns their memories; `unmapPages` and `forget`
  /// do the rest.
  CUresult unmap(CUdeviceptr address, uint64_t bytes, std::vector<uint64_t>& memories);
  void unmapPages(CUdeviceptr address, uint64_t bytes);
  /// Counts one more mapping, to an array. Nothing if there is no such memory, or it was released.
  std::optional<CUmemGenericAllocationHandle> hold(uint64_t memory);
  /// Counts one mapping less.
  void forget(const std::vector<uint64_t>& memories);
  CUresult setAccess(CUdeviceptr address, uint64_t bytes, std::span<const CUmemAccessDesc> access);

 private:
  struct Memory {
    CUmemGenericAllocationHandle handle;
    size_t device;
    ClaimBudget::Charge charge;
    uint64_t mappings;
    bool released;
  };
  struct Mapping {
    uint64_t bytes;
    uint64_t memory;
  };
  using Mappings = std::map<CUdeviceptr, Mapping>;

  /// The mappings that make up the range exactly.
  bool find(CUdeviceptr address, uint64_t bytes, Mappings::iterator& first, Mappings::iterator& last);
  void dropIfUnused(std::map<uint64_t, Memory>::iterator memory);

  const Driver& driver_;
  std::deque<ClaimBudget>& budgets_;
  std::map<CUdeviceptr, uint64_t> reservations_;
  std::map<uint64_t, Memory> memories_;
  Mappings mappings_;
};

}  // namespace millpond::worker
