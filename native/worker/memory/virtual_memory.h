// SPDX-License-Identifier: Apache-2.0
// What a session reserved, made and mapped with the driver's virtual-memory calls. Everything the client says is checked
// against it, so that no session reaches the addresses of its worker's own arenas.
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
  /// Takes a reservation out of the books; `freeAddresses` gives it back to the driver.
  CUresult unreserve(CUdeviceptr address, uint64_t bytes);
  void freeAddresses(CUdeviceptr address, uint64_t bytes);

  /// `device`: ordinal in the session. CUDA_ERROR_OUT_OF_MEMORY when the limit or the device has no room. False in
  /// `isNew` when there is memory of that number already.
  CUresult create(uint64_t memory, size_t device, uint64_t bytes, const CUmemAllocationProp& prop, bool& isNew);
  /// Takes up memory that another session has made, as for MemoryArena::adopt.
  CUresult adopt(uint64_t memory, size_t device, uint64_t bytes, CUmemGenericAllocationHandle handle, uint64_t shared);
  /// As for MemoryArena::share.
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
  /// Whether all of that lies in addresses that the session has reserved, be it in several runs one behind the other.
  bool isReserved(CUdeviceptr address, uint64_t bytes) const;

  CUresult map(CUdeviceptr address, uint64_t bytes, uint64_t offset, uint64_t memory);
  /// The memories of the mappings that make up the range, taken out of the books; `unmapPages` and `forget` do the rest.
  CUresult unmap(CUdeviceptr address, uint64_t bytes, std::vector<uint64_t>& memories);
  void unmapPages(CUdeviceptr address, uint64_t bytes);
  /// It is mapped once more, to an array. Nothing where there is no such memory that is not released.
  std::optional<CUmemGenericAllocationHandle> hold(uint64_t memory);
  /// These are mapped once less.
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
