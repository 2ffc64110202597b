// SPDX-License-Identifier: Apache-2.0
// Questions about devices whose answers have no fixed length: where the multiprocessors lie, and which atomic operations
// there are.
#pragma once

#include "worker/core/session_part.h"

namespace millpond::worker {

class Topology : private SessionPart {
 public:
  explicit Topology(SessionCore& session) : SessionPart(session) {}

  CUresult onSmTopology(const cmd::Decoded<cmd::SmTopology>& command);
  CUresult onAtomicCapabilities(const cmd::Decoded<cmd::AtomicCapabilities>& command);
};

}  // namespace millpond::worker
