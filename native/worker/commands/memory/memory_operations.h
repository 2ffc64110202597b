// SPDX-License-Identifier: Apache-2.0
// Values of calls that have addresses in them, as the driver takes them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cuda/crossing.h"
#include "cuda/launch_attribute.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class MemoryOperations : private SessionPart {
 public:
  MemoryOperations(SessionCore& session, AddressGate& addresses) : SessionPart(session), addresses_(addresses) {}

  /// Memory operations as the driver takes them. `isRecorded`: for a graph.
  CUresult admit(std::span<const std::byte> bytes, std::vector<CUstreamBatchMemOpParams>& out, bool isRecorded = false);
  /// Before the driver makes one: CUDA_ERROR_OUT_OF_MEMORY where the claim has as many as it may have.
  CUresult admit(HandleKind kind);
  /// An attribute's value as the driver takes it.
  CUresult attribute(CUlaunchAttributeID id, const Crossing<CUlaunchAttributeValue>& value, CUlaunchAttributeValue& out,
                     bool isRecorded = false);

 private:
  AddressGate& addresses_;
};

}  // namespace millpond::worker
