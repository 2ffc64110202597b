// SPDX-License-Identifier: Apache-2.0
// The program's advice about managed memory, which it can read back. The memory itself is on the host, accessible to
// both sides, so nothing moves.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// A location as named by the program; NONE, 0 if it named none.
struct Place {
  CUmemLocationType type = CU_MEM_LOCATION_TYPE_NONE;
  int id = 0;
  auto operator<=>(const Place&) const = default;
};

class ManagedMemory {
 public:
  struct Advice {
    bool readMostly = false;
    Place preferred;
    Place prefetched;
    std::set<Place> accessedBy;
    bool operator==(const Advice&) const = default;
  };

  /// Allocations are added and removed as a whole.
  void add(uint64_t address, uint64_t bytes);
  void drop(uint64_t address);
  /// Changes the advice about every byte of a range of allocations. Returns false, and changes nothing, if some of it
  /// is not allocated.
  template <typename Change>
  bool change(uint64_t address, uint64_t bytes, Change&& change) {
    std::lock_guard lock(mutex_);
    if (!covers(address, bytes)) return false;
    split(address);
    split(address + bytes);
    for (auto each = pieces_.find(address); each != pieces_.end() && each->first < address + bytes; ++each)
      change(each->second.advice);
    return true;
  }
  /// Visits the advice about every piece of a range; false if some of it is not managed.
  template <typename Visit>
  bool visit(uint64_t address, uint64_t bytes, Visit&& visit) {
    std::lock_guard lock(mutex_);
    if (!covers(address, bytes)) return false;
    for (auto each = std::prev(pieces_.upper_bound(address)); each != pieces_.end() && each->first < address + bytes;
         ++each)
      visit(each->second.advice);
    return true;
  }

 private:
  struct Piece {
    uint64_t bytes;
    uint64_t allocation;
    Advice advice;
  };
  bool covers(uint64_t address, uint64_t bytes) const;
  /// Splits the piece that spans `address`, if any.
  void split(uint64_t address);

  std::mutex mutex_;
  std::map<uint64_t, Piece> pieces_;
};

}  // namespace millpond::client
