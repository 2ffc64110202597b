// SPDX-License-Identifier: Apache-2.0
// Copies between memory that the worker and the device can access: memory shared with the client, device memory and arrays.
#pragma once

#include "worker/commands/memory/host_copies.h"
#include "worker/core/session_part.h"
#include "worker/core/waits.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class Copies : private SessionPart {
 public:
  Copies(SessionCore& session, AddressGate& addresses, HostCopies& hostCopies, Waits& waits)
      : SessionPart(session), addresses_(addresses), hostCopies_(hostCopies), waits_(waits) {}

  CUresult onSynchronousCopy(const cmd::Decoded<cmd::SynchronousCopy>& command);
  CUresult onCopyBox(const cmd::Decoded<cmd::CopyBox>& command);
  CUresult onCopyHostShared(const cmd::Decoded<cmd::CopyHostShared>& command);

 private:
  AddressGate& addresses_;
  HostCopies& hostCopies_;
  Waits& waits_;
};

}  // namespace millpond::worker
