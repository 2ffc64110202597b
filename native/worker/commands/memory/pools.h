// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: it shares the arenas and the limit of all other memory, so an allocation is answered without
// waiting for the device, and a free waits only for its stream.
#pragma once

#include <vector>

#include "worker/commands/memory/device_memory.h"
#include "worker/commands/memory/frees.h"
#include "worker/core/session_part.h"
#include "worker/ipc/peer_sharing.h"
#include "worker/memory/memory_pools.h"

namespace millpond::worker {

class Pools : private SessionPart {
 public:
  /// `sharing`: null where sessions share nothing.
  Pools(SessionCore& session, DeviceMemory& memory, Frees& frees, Sharing* sharing)
      : SessionPart(session), memory_(memory), frees_(frees), sharing_(sharing) {}

  CUresult onPoolCreate(const cmd::Decoded<cmd::PoolCreate>& command);
  CUresult onPoolDestroy(const cmd::Decoded<cmd::PoolDestroy>& command);
  CUresult onPoolSetThreshold(const cmd::Decoded<cmd::PoolSetThreshold>& command);
  CUresult onPoolResetHigh(const cmd::Decoded<cmd::PoolResetHigh>& command);
  CUresult onPoolHigh(const cmd::Decoded<cmd::PoolHigh>& command);
  CUresult onPoolTrim(const cmd::Decoded<cmd::PoolTrim>& command);
  CUresult onPoolUsage(const cmd::Decoded<cmd::PoolUsage>& command);

  /// Frees a block of a pool in stream order, and for all streams when that position is reached.
  void freeBlock(CUdeviceptr address, MemoryPools::StreamKey stream, const std::vector<Mark>& place);

 private:
  DeviceMemory& memory_;
  Frees& frees_;
  Sharing* const sharing_;
};

}  // namespace millpond::worker
