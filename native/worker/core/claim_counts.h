// SPDX-License-Identifier: Apache-2.0
// What the session counts for its claim beside device memory: handles, contexts, nodes of graphs, pinned host memory.
#pragma once

#include <cstdint>
#include <string>

#include "worker/claim/claim_things.h"
#include "worker/core/session_core.h"

namespace millpond::worker {

class ClaimCounts {
 public:
  ClaimCounts(SessionCore& session, ThingLimits limits) : session_(session), things_(limits) {}

  /// Counts in that file from here on, with the other sessions of the claim.
  Status enter(const std::string& path) { return things_.enter(path); }
  /// The session is over.
  void rest() { things_.rest(); }

  uint64_t held(Thing thing) const { return things_.held(thing); }
  /// This session has that many from here on. False, with a line in the log, where the claim would have too many.
  bool hold(Thing thing, uint64_t amount);
  /// Takes that many more. False where the claim may not have them.
  bool take(Thing thing, uint64_t amount) {
    return amount <= UINT64_MAX - held(thing) && hold(thing, held(thing) + amount);
  }
  void give(Thing thing, uint64_t amount) { hold(thing, held(thing) - amount); }

  /// Before the driver makes a stream or an event: whether the claim may have one more.
  bool hasRoomFor(HandleKind kind);
  /// The counts are what the handles of that kind say.
  void count(HandleKind kind);
  /// The program's contexts, as the session has them now.
  void countContexts();

 private:
  SessionCore& session_;
  ClaimThings things_;
  uint8_t logged_ = 0;  ///< things of which the log says that the claim has all that it may have, a bit for each
};

}  // namespace millpond::worker
