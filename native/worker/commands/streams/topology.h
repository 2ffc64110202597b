// SPDX-License-Identifier: Apache-2.0
// Queries of devices whose results have no fixed length: the layout of multiprocessors, and the supported atomic
// operations.
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
