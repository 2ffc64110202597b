// SPDX-License-Identifier: Apache-2.0
// Contexts that the program creates beside the devices' primary ones, and the settings of contexts.
#pragma once

#include <cstdint>

#include "worker/commands/memory/charges.h"
#include "worker/core/claim_counts.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

/// Success if that number is free for a new context of the program.
CUresult admitContext(SessionCore& session, uint32_t number);

class ContextCommands : private SessionPart {
 public:
  ContextCommands(SessionCore& session, ClaimCounts& counts, Charges& charges)
      : SessionPart(session), counts_(counts), charges_(charges) {}

  CUresult onContextCreate(const cmd::Decoded<cmd::ContextCreate>& command);
  CUresult onContextSetLimit(const cmd::Decoded<cmd::ContextSetLimit>& command);
  CUresult onContextSetCacheConfig(const cmd::Decoded<cmd::ContextSetCacheConfig>& command);
  CUresult onContextRecordEvent(const cmd::Decoded<cmd::ContextRecordEvent>& command);
  CUresult onContextWaitEvent(const cmd::Decoded<cmd::ContextWaitEvent>& command);
  CUresult onPeerAccess(const cmd::Decoded<cmd::PeerAccess>& command);

 private:
  ClaimCounts& counts_;
  Charges& charges_;
};

}  // namespace millpond::worker
