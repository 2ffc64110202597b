// SPDX-License-Identifier: Apache-2.0
// The memory of a session's devices: an arena for each, the pools of the program, and the pools of other sessions that it
// has opened.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/core/budgets.h"
#include "worker/core/session_part.h"
#include "worker/ipc/opened_pools.h"
#include "worker/ipc/peer_sharing.h"
#include "worker/memory/memory_arena.h"
#include "worker/memory/memory_pools.h"

namespace millpond::worker {

class DeviceMemory : private SessionPart {
 public:
  /// `sharing`: objects shared by sessions of the claim; null if there are no others.
  DeviceMemory(SessionCore& session, Budgets& budgets, const Sharing* sharing);

  size_t devices() const { return arenas_.size(); }
  /// By device.
  std::vector<std::unique_ptr<MemoryArena>>& arenas() { return arenas_; }
  MemoryArena& arena(size_t device) { return *arenas_[device]; }
  MemoryPools& pools() { return pools_; }
  const MemoryPools& pools() const { return pools_; }
  OpenedPools& opened() { return opened_; }
  /// The device whose arena has an allocation at that address.
  std::optional<size_t> deviceOf(CUdeviceptr address) const;
  /// Whether memory of a device can be shared with other sessions.
  bool canShare(size_t device) const;

  /// Takes memory from a device's arena, if necessary after releasing unused memory of its pools.
  CUresult allocate(size_t device, uint64_t bytes, CUdeviceptr& address);
  /// Releases unused memory of a device's pools. Returns whether there was any.
  bool trimPools(size_t device);
  /// Returns an allocation to its arena, or ends one use of memory of an opened pool. The primary context of its device
  /// must be current.
  void free(size_t device, CUdeviceptr address);
  void giveBack(const std::vector<MemoryPools::Block>& blocks);

 private:
  Budgets& budgets_;
  const Sharing* sharing_;
  std::vector<std::unique_ptr<MemoryArena>> arenas_;
  MemoryPools pools_;
  OpenedPools opened_;
};

}  // namespace millpond::worker
