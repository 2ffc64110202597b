// SPDX-License-Identifier: Apache-2.0
// Memory of the client that becomes, and ceases to be, mirrored.
#pragma once

#include "worker/commands/copies/landings.h"
#include "worker/commands/memory/mirrored_bytes.h"
#include "worker/core/session_part.h"
#include "worker/memory/host_runs.h"

namespace millpond::worker {

class MirroredMemory : private SessionPart {
 public:
  MirroredMemory(SessionCore& session, HostRuns& hostRuns, MirroredBytes& bytes, Landings& landings)
      : SessionPart(session), hostRuns_(hostRuns), bytes_(bytes), landings_(landings) {}

  CUresult onHostMirror(const cmd::Decoded<cmd::HostMirror>& command);
  CUresult onHostContents(const cmd::Decoded<cmd::HostContents>& command);

 private:
  HostRuns& hostRuns_;
  MirroredBytes& bytes_;
  Landings& landings_;
};

}  // namespace millpond::worker
