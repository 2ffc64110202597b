// SPDX-License-Identifier: Apache-2.0
// The one way from an address of a client to one that the driver is given. To the driver every address that it does not
// know is memory of the process that calls it, and so of the worker: none reaches it that is not the session's.
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

/// Memory of the session. Only AddressGate makes one that is not empty.
class SessionRange {
 public:
  /// At null, of no bytes.
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

/// One end of a copy in up to three dimensions. `address`: where its offsets count from; `rows`: of a slice.
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

  /// From the first byte that is copied to the last: how far behind the address it begins, and how long it is. Nothing
  /// where that is no number, or where there is no byte.
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

  /// All belong to the session and outlive the gate. `isCapturing`: whether a capture is open, so that whatever is given
  /// out may become part of a graph.
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

  // CUDA_ERROR_INVALID_VALUE where not all of it is the session's. A context that has failed may answer with its failure. A
  // range without bytes touches nothing, and nothing lies at null in any process: then the range is empty, at null, and the
  // driver decides about it.

  /// Device memory.
  CUresult device(wire::Address address, uint64_t bytes, SessionRange& out) const;
  /// Pinned memory of the host that the session has. `isRecorded`: for a graph, which may come to it later.
  CUresult host(wire::Address address, uint64_t bytes, SessionRange& out, bool isRecorded = false);
  /// What kernels of the session reach: either of the two.
  CUresult reach(wire::Address address, uint64_t bytes, SessionRange& out, bool isRecorded = false);
  /// All of an end of a copy. The range begins at its first byte.
  CUresult reach(const Box& box, SessionRange& out, bool isRecorded = false);

  /// For a question to books that hold nothing but what is the session's. Never for the driver.
  static uint64_t key(wire::Address address) { return address.value_; }
  /// Where the session would like to have addresses of its own. It gets them only where nothing lies.
  static uint64_t wish(wire::Address address) { return address.value_; }
  /// For what goes back to the client, whose address it is. Never for the driver.
  static uint64_t echo(wire::Address address) { return address.value_; }

 private:
  bool isKnownDevice(uint64_t address, uint64_t bytes) const;
  /// Memory that the driver itself has made: variables of modules, memory of graphs that a launch has left.
  CUresult isDriversDevice(uint64_t address, uint64_t bytes) const;

  const Driver& driver_;
  const Arenas& arenas_;
  const VirtualMemory& virtualMemory_;
  const GraphMemory& graphMemory_;
  HostRuns& hostRuns_;
  const std::function<bool()> isCapturing_;
};

}  // namespace millpond::worker
