// SPDX-License-Identifier: Apache-2.0
// The end of contexts: everything that the session has in them ends as well.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "worker/commands/copies/downloads.h"
#include "worker/commands/memory/charges.h"
#include "worker/commands/memory/pinned_memory.h"
#include "worker/core/claim_counts.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"
#include "worker/core/waits.h"

namespace millpond::worker {

class ContextEnds : private SessionPart {
 public:
  /// `observer`: called when a context ends or is reset, after its handles have been lost; its work is done or
  /// abandoned.
  ContextEnds(SessionCore& session, ClaimCounts& counts, Charges& charges, Waits& waits, FunctionOrder& order,
              PinnedMemory& pinned, Downloads& downloads, std::function<void(uint16_t context)> observer)
      : SessionPart(session),
        counts_(counts),
        charges_(charges),
        waits_(waits),
        order_(order),
        pinned_(pinned),
        downloads_(downloads),
        observer_(std::move(observer)) {}

  CUresult onContextDestroy(const cmd::Decoded<cmd::ContextDestroy>& command);
  CUresult onContextReset(const cmd::Decoded<cmd::ContextReset>& command);

 private:
  /// Drops all objects of a context. Returns the number of its end for `charges_`.
  uint64_t forget(uint16_t number);
  /// Ends the streams of a green context, which the driver leaves.
  void endStreamsOf(uint16_t number);
  CUresult resetPrimary(uint16_t number);

  ClaimCounts& counts_;
  Charges& charges_;
  Waits& waits_;
  FunctionOrder& order_;
  PinnedMemory& pinned_;
  Downloads& downloads_;
  const std::function<void(uint16_t)> observer_;
};

}  // namespace millpond::worker
