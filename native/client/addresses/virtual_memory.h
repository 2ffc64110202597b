// SPDX-License-Identifier: Apache-2.0
// The reservations, allocations and mappings of this process by the virtual-memory calls. Sends nothing: it decides
// what is allowed and returns the commands that the worker needs. Callers hold `mutex`, so that commands reach the
// worker in the same order.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class VirtualMemory {
 public:
  using Handle = CUmemGenericAllocationHandle;

  struct Memory {
    uint64_t wire = 0;  ///< its number at the worker
    uint64_t bytes = 0;
    CUmemAllocationProp prop{};
    uint16_t context = 0;  ///< 1 + device ordinal
    unsigned holds = 0;    ///< handles, mappings and exported files
  };
  struct Mapping {
    uint64_t bytes = 0;
    Handle handle = 0;
    Memory* memory = nullptr;
    std::map<int, CUmemAccess_flags> access;  ///< by the program's device ordinals
  };
  struct Reservation {
    uint64_t address = 0;
    uint64_t bytes = 0;
    bool guarded = false;
  };
  using Mappings = std::map<CUdeviceptr, Mapping>;

  std::mutex mutex;

  uint64_t nextWire() { return ++lastWire_; }
  void addReservation(const Reservation& reservation) { reservations_[reservation.address] = reservation; }
  /// Removes and returns the reservation of exactly these addresses, if nothing is mapped there.
  std::optional<Reservation> takeReservation(CUdeviceptr address, uint64_t bytes);
  std::optional<Reservation> reservationAt(CUdeviceptr address) const;

  /// Memory that the worker has made, and a handle of it.
  Handle add(const Memory& memory);
  /// Another handle of the memory.
  Handle addHandle(Memory& memory);
  /// nullptr if there is no such handle. The memory stays until nothing holds it.
  Memory* find(Handle handle) const;
  /// Drops one use of the handle. False if it does not exist. `ended` gets the number of a memory that nothing holds
  /// any more.
  bool release(Handle handle, std::vector<uint64_t>& ended);
  /// Another use of the handle whose memory is mapped at `address`.
  std::optional<Handle> retain(CUdeviceptr address);

  /// Whether this much of the memory can be mapped there.
  bool canMap(CUdeviceptr address, uint64_t bytes, uint64_t offset, const Memory& memory) const;
  void map(CUdeviceptr address, uint64_t bytes, Handle handle);
  /// The mappings that make up the range exactly.
  bool find(CUdeviceptr address, uint64_t bytes, Mappings::iterator& first, Mappings::iterator& last);
  /// Removes them; `ended` as in `release`.
  void unmap(Mappings::iterator first, Mappings::iterator last, std::vector<uint64_t>& ended);
  const Mapping* mappingAt(CUdeviceptr address) const;

  /// A file that represents the memory for as long as a copy of it is open anywhere; -1 if it cannot be created.
  /// `handle`: what other processes of the claim read from it; empty: the file is valid only in this process.
  int exportFile(Memory& memory, std::span<const std::byte> handle);
  /// The memory behind such a file; nullptr for any other file.
  Memory* imported(int file) const;
  /// Forgets exported files that are closed; `ended` as in `release`.
  void sweepExports(std::vector<uint64_t>& ended);

 private:
  struct Uses {
    Memory* memory;
    unsigned count = 1;
  };
  /// A pair of sockets, one of which was given out: no other file has its identity, and the other end detects when it
  /// is closed.
  struct Export {
    UniqueFd kept;
    uint64_t device;
    uint64_t inode;
    Memory* memory;
  };

  void drop(Memory& memory, std::vector<uint64_t>& ended);

  std::map<uint64_t, Memory> memories_;  // by number
  std::map<CUdeviceptr, Reservation> reservations_;
  std::map<Handle, Uses> handles_;
  Mappings mappings_;
  std::vector<Export> exports_;
  Handle lastHandle_ = 0;
  uint64_t lastWire_ = 0;
};

}  // namespace millpond::client
