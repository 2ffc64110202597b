// SPDX-License-Identifier: Apache-2.0
// Counts of the session that its claim limits, besides device memory: handles, contexts, nodes of graphs, pinned host
// memory.
#pragma once

#include <cstdint>

#include "worker/claim/claim_things.h"
#include "worker/core/session_core.h"

namespace millpond::worker {

class ClaimCounts {
 public:
  ClaimCounts(SessionCore& session, ClaimThings& things) : session_(session), things_(things) {}

  uint64_t held(Thing thing) const { return things_.held(thing); }
  /// Sets this session's count. Returns false, and logs a line, if the claim would exceed its limit.
  bool hold(Thing thing, uint64_t amount);
  /// Adds to the count. Returns false if the claim would exceed its limit.
  bool take(Thing thing, uint64_t amount) {
    return amount <= UINT64_MAX - held(thing) && hold(thing, held(thing) + amount);
  }
  void give(Thing thing, uint64_t amount) { hold(thing, held(thing) - amount); }

  /// Whether the claim may have one more stream or event; called before the driver creates it.
  bool hasRoomFor(HandleKind kind);
  /// Recounts from the handles of that kind.
  void count(HandleKind kind);
  /// The number of the program's contexts.
  void countContexts();

 private:
  /// Objects of the program; with streams those that it destroyed, too, while their work continues.
  uint64_t countOf(HandleKind kind) const;

  SessionCore& session_;
  ClaimThings& things_;
  uint8_t logged_ = 0;  ///< kinds whose limit was logged as reached, a bit for each
};

}  // namespace millpond::worker
