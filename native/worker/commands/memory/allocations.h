// SPDX-License-Identifier: Apache-2.0
// Allocations of device memory, also of pools, and their ends.
#pragma once

#include <cstdint>

#include "worker/commands/graphs/capture_commands.h"
#include "worker/commands/graphs/graph_memory.h"
#include "worker/commands/memory/device_memory.h"
#include "worker/commands/memory/frees.h"
#include "worker/commands/memory/pools.h"
#include "worker/commands/sharing/shared_objects.h"
#include "worker/core/budgets.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"
#include "worker/ipc/peer_sharing.h"

namespace millpond::worker {

class Allocations : private SessionPart {
 public:
  /// `sharing`: null where sessions share nothing.
  Allocations(SessionCore& session, Budgets& budgets, DeviceMemory& memory, Frees& frees, FunctionOrder& order,
              Pools& pools, SharedObjects& sharedObjects, GraphMemory& graphMemory, CaptureCommands& captureCommands,
              Sharing* sharing)
      : SessionPart(session),
        budgets_(budgets),
        memory_(memory),
        frees_(frees),
        order_(order),
        pools_(pools),
        sharedObjects_(sharedObjects),
        graphMemory_(graphMemory),
        captureCommands_(captureCommands),
        sharing_(sharing) {}

  CUresult onMemAlloc(const cmd::Decoded<cmd::MemAlloc>& command);
  CUresult onMemFree(const cmd::Decoded<cmd::MemFree>& command);
  CUresult onMemGetInfo(const cmd::Decoded<cmd::MemGetInfo>& command);
  CUresult onPoolAlloc(const cmd::Decoded<cmd::PoolAlloc>& command);
  CUresult onPoolFree(const cmd::Decoded<cmd::PoolFree>& command);

 private:
  CUresult free(CUdeviceptr address, bool isLeft);
  CUresult memoryInfo(uint16_t context);
  /// Memory that becomes a node of a graph is not allocated here. Queries the driver in any case: a stream can belong
  /// to a capture whose origin has ended.
  CUresult refuseCapture(const Stream& stream) const;

  Budgets& budgets_;
  DeviceMemory& memory_;
  Frees& frees_;
  FunctionOrder& order_;
  Pools& pools_;
  SharedObjects& sharedObjects_;
  GraphMemory& graphMemory_;
  CaptureCommands& captureCommands_;
  Sharing* const sharing_;
};

}  // namespace millpond::worker
