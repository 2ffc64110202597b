// SPDX-License-Identifier: Apache-2.0
// Arrays, their levels and planes, and the memory of sparse ones.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "cuda/crossing.h"
#include "worker/commands/memory/frees.h"
#include "worker/core/session_objects.h"
#include "worker/core/session_part.h"
#include "worker/memory/array_tiles.h"
#include "worker/memory/virtual_memory.h"

namespace millpond::worker {

class Arrays : private SessionPart {
 public:
  Arrays(SessionCore& session, Budgets& budgets, DeviceMemory& memory, Frees& frees, VirtualMemory& virtualMemory,
         SessionObjects& objects)
      : SessionPart(session),
        budgets_(budgets),
        memory_(memory),
        frees_(frees),
        virtualMemory_(virtualMemory),
        objects_(objects) {}

  bool empty() const { return arrayBytes_.empty(); }

  CUresult onArrayCreate(const cmd::Decoded<cmd::ArrayCreate>& command);
  CUresult onArrayDestroy(const cmd::Decoded<cmd::ArrayDestroy>& command);
  CUresult onArrayLevel(const cmd::Decoded<cmd::ArrayLevel>& command);
  CUresult onArrayRequirements(const cmd::Decoded<cmd::ArrayRequirements>& command);
  CUresult onArrayPlane(const cmd::Decoded<cmd::ArrayPlane>& command);
  CUresult onArrayMap(const cmd::Decoded<cmd::ArrayMap>& command);

 private:
  struct ArrayMemory {
    uint16_t device = 0;  ///< ordinal in the session
    uint64_t bytes = 0;
    bool isDeferred = false;  ///< mapped as a whole
  };
  /// The effect of an entry of ArrayMap.
  struct TileChange {
    uint64_t array = 0;
    ArrayTiles::Part part;
    std::optional<uint64_t> memory;  ///< none: it unmaps
  };

  CUresult makeArray(const cmd::ArrayCreate& wanted, void*& made, uint64_t& bytes);
  /// Puts the driver's objects into an entry.
  CUresult readTile(const Crossing<CUarrayMapInfo>& sent, CUarrayMapInfo& entry, TileChange& change);

  Budgets& budgets_;
  DeviceMemory& memory_;
  Frees& frees_;
  VirtualMemory& virtualMemory_;
  SessionObjects& objects_;
  std::unordered_map<uint64_t, ArrayMemory> arrayBytes_;  ///< by handle; levels and planes have none of their own
  ArrayTiles tiles_;
};

}  // namespace millpond::worker
