// SPDX-License-Identifier: Apache-2.0
// Converts values that hold addresses to the driver's form.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cuda/crossing.h"
#include "cuda/launch_attribute.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class MemoryOperations : private SessionPart {
 public:
  MemoryOperations(SessionCore& session, AddressGate& addresses, FunctionOrder& order)
      : SessionPart(session), addresses_(addresses), order_(order) {}

  /// Memory operations in the driver's form. `isRecorded`: for a graph.
  CUresult admit(std::span<const std::byte> bytes, std::vector<CUstreamBatchMemOpParams>& out, bool isRecorded = false);
  /// Called before the driver creates one: CUDA_ERROR_OUT_OF_MEMORY if the claim has reached its limit.
  CUresult admit(HandleKind kind);
  /// An attribute's value in the driver's form.
  CUresult attribute(CUlaunchAttributeID id, const Crossing<CUlaunchAttributeValue>& value, CUlaunchAttributeValue& out,
                     bool isRecorded = false);

 private:
  AddressGate& addresses_;
  FunctionOrder& order_;
};

}  // namespace millpond::worker
