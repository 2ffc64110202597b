// SPDX-License-Identifier: Apache-2.0
// The driver's objects behind the handles of the client: their creation, and the consequences of their end.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "worker/core/claim_counts.h"
#include "worker/core/session_part.h"
#include "worker/core/waits.h"

namespace millpond::worker {

class SessionObjects : private SessionPart {
 public:
  /// `charge`: charges the device memory of one more stream in the current context.
  SessionObjects(SessionCore& session, ClaimCounts& counts, Waits& waits, std::function<CUresult()> charge)
      : SessionPart(session), counts_(counts), waits_(waits), chargeStream_(std::move(charge)) {}

  /// Called before an event or a stream of that number ends; the driver may have failed to create the stream.
  void onEventEnd(std::function<void(uint64_t wire)> observer) { eventObservers_.push_back(std::move(observer)); }
  void onStreamEnd(std::function<void(uint64_t wire, CUstream stream)> observer) {
    streamObservers_.push_back(std::move(observer));
  }

  /// Called before the driver creates one: CUDA_ERROR_OUT_OF_MEMORY if the claim has reached its limit.
  CUresult admit(HandleKind kind);
  /// Returns false if the number is taken, or not a number of that kind.
  bool adopt(HandleKind kind, uint64_t wire, void* object);
  /// Returns false if there is none.
  bool drop(HandleKind kind, uint64_t wire);

 private:
  ClaimCounts& counts_;
  Waits& waits_;
  std::function<CUresult()> chargeStream_;
  std::vector<std::function<void(uint64_t)>> eventObservers_;
  std::vector<std::function<void(uint64_t, CUstream)>> streamObservers_;
};

}  // namespace millpond::worker
