// SPDX-License-Identifier: Apache-2.0
// Tensor maps, which the driver encodes.
#pragma once

#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class TensorMaps : private SessionPart {
 public:
  TensorMaps(SessionCore& session, AddressGate& addresses) : SessionPart(session), addresses_(addresses) {}

  CUresult onTensorMapEncode(const cmd::Decoded<cmd::TensorMapEncode>& command);
  CUresult onTensorMapReplaceAddress(const cmd::Decoded<cmd::TensorMapReplaceAddress>& command);

 private:
  AddressGate& addresses_;
};

}  // namespace millpond::worker
