// SPDX-License-Identifier: Apache-2.0
// The only conversion from a client's address to an address for the driver. A driver treats every unknown address as
// memory of the calling process, which is the worker: only addresses of the session reach it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/address.h"
#include "worker/device/driver.h"
#include "worker/memory/graph_allocation.h"
#include "worker/memory/host_runs.h"
#include "worker/memory/memory_arena.h"
#include "worker/memory/virtual_memory.h"

namespace millpond::worker {

/// Memory of the session. Only AddressGate creates a non-empty one.
class SessionRange {
 public:
  /// Empty, at null.
  SessionRange() = default;

  /// Pinned memory of the host, at the same address in the client.
  bool isHost() const { return isHost_; }
  CUdeviceptr device() const { return begin_; }
  std::byte* host() const { return reinterpret_cast<std::byte*>(begin_); }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class AddressGate;
  SessionRange(uint64_t begin, uint64_t bytes, bool isHost) : begin_(begin), bytes_(bytes), isHost_(isHost) {}

  CUdeviceptr begin_ = 0;
  uint64_t bytes_ = 0;
  bool isHost_ = false;
};

/// One end of a copy in up to three dimensions. `address`: the base of its offsets; `rows`: of a slice.
struct Box {
  wire::Address address;
  uint64_t pitch = 0;
  uint64_t rows = 0;
  uint64_t x = 0;  ///< bytes
  uint64_t y = 0;
  uint64_t z = 0;
  uint64_t width = 0;  ///< bytes
  uint64_t height = 1;
  uint64_t depth = 1;

  /// Replaces a pitch and a number of rows of 0, for which a driver assumes rows and slices without gaps, by these numbers.
  /// Returns false on overflow.
  bool fill();
  /// The range from the first copied byte to the last: its offset from the address, and its length. Nothing on
  /// overflow, if there is no byte, or if rows overlap: drivers refuse that, or take other numbers.
  struct Extent {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t rowStride = 0;
    uint64_t sliceStride = 0;
  };
  std::optional<Extent> extent() const;
};

class AddressGate {
 public:
  using Arenas = std::vector<std::unique_ptr<MemoryArena>>;
  using GraphMemory = std::map<CUdeviceptr, std::weak_ptr<GraphAllocation>>;

  /// All arguments belong to the session and outlive the gate. `isCapturing`: whether a capture is open, so that any
  /// range may become part of a graph.
  AddressGate(const Driver& driver, const Arenas& arenas, const VirtualMemory& virtualMemory,
              const GraphMemory& graphMemory, HostRuns& hostRuns, std::function<bool()> isCapturing)
      : driver_(driver),
        arenas_(arenas),
        virtualMemory_(virtualMemory),
        graphMemory_(graphMemory),
        hostRuns_(hostRuns),
        isCapturing_(std::move(isCapturing)) {}
  AddressGate(const AddressGate&) = delete;
  AddressGate& operator=(const AddressGate&) = delete;

  // CUDA_ERROR_INVALID_VALUE if a part of it does not belong to the session. A failed context may return its failure. A
  // range without bytes accesses nothing, and no process has anything mapped at null: it becomes the empty range at
  // null, which the driver accepts or refuses.

  /// Device memory.
  CUresult device(wire::Address address, uint64_t bytes, SessionRange& out) const;
  /// Pinned host memory of the session. `isRecorded`: for a graph, which may use it later.
  CUresult host(wire::Address address, uint64_t bytes, SessionRange& out, bool isRecorded = false);
  /// Memory that kernels of the session can access: either of the two.
  CUresult reach(wire::Address address, uint64_t bytes, SessionRange& out, bool isRecorded = false);
  /// The whole end of a copy. The range begins at its first byte.
  CUresult reach(const Box& box, SessionRange& out, bool isRecorded = false);
  /// Whether the base of its offsets is memory of the session, too, and of the same kind.
  bool reachesBase(const Box& box, const SessionRange& range);

  /// For lookups in tables that contain only objects of the session. Never for the driver.
  static uint64_t key(wire::Address address) { return address.value_; }
  /// An address hint of the session; it is used only if nothing is mapped there.
  static uint64_t wish(wire::Address address) { return address.value_; }
  /// For values that are returned to the client, which owns the address. Never for the driver.
  static uint64_t echo(wire::Address address) { return address.value_; }

 private:
  bool isKnownDevice(uint64_t address, uint64_t bytes) const;
  /// Memory that the driver itself allocated: variables of modules, memory that graph launches have left.
  CUresult isDriversDevice(uint64_t address, uint64_t bytes) const;

  const Driver& driver_;
  const Arenas& arenas_;
  const VirtualMemory& virtualMemory_;
  const GraphMemory& graphMemory_;
  HostRuns& hostRuns_;
  const std::function<bool()> isCapturing_;
};

}  // namespace millpond::worker
