// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, shared with a client on the same host, or this worker's own where the client mirrors it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "worker/commands/memory/frees.h"
#include "worker/commands/memory/pinned_memory.h"
#include "worker/core/claim_counts.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"
#include "worker/core/waits.h"
#include "worker/memory/address_gate.h"
#include "worker/memory/client_pages.h"
#include "worker/memory/host_runs.h"

namespace millpond::worker {

class HostMemory : private SessionPart {
 public:
  HostMemory(SessionCore& session, ClaimCounts& counts, PinnedMemory& pinned, ClientPages& clientPages,
             HostRuns& hostRuns, Frees& frees, FunctionOrder& order, Waits& waits, std::function<bool()> areThereGraphs)
      : SessionPart(session),
        counts_(counts),
        pinned_(pinned),
        clientPages_(clientPages),
        hostRuns_(hostRuns),
        frees_(frees),
        order_(order),
        waits_(waits),
        areThereGraphs_(std::move(areThereGraphs)) {}

  /// Unmaps memory that was freed while graphs held addresses in it, once there is no graph any more.
  void releaseForgotten();

  CUresult onHostAlloc(const cmd::Decoded<cmd::HostAlloc>& command);
  CUresult onHostKeep(const cmd::Decoded<cmd::HostKeep>& command);
  CUresult onHostFree(const cmd::Decoded<cmd::HostFree>& command);

 private:
  /// Maps and pins whole pages at exactly that address: of a file, or, without one, those that copies of graphs to and from
  /// that memory of the client use, too.
  CUresult mapHostRun(uint64_t address, uint64_t bytes, int file);
  void unmapHostRun(uint64_t address, const HostRuns::Run& run);
  void releaseHostRun(uint64_t address, const HostRuns::Run& run);

  ClaimCounts& counts_;
  PinnedMemory& pinned_;
  ClientPages& clientPages_;
  HostRuns& hostRuns_;
  Frees& frees_;
  FunctionOrder& order_;
  Waits& waits_;
  std::function<bool()> areThereGraphs_;
};

}  // namespace millpond::worker
