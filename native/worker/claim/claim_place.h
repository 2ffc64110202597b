// SPDX-License-Identifier: Apache-2.0
// The claim of a session, as its worker knows it.
#pragma once

#include <cstdint>
#include <string>

#include "worker/claim/claim_things.h"

namespace millpond::worker {

/// State that the sessions of an allocation share on this node.
struct ClaimPlace {
  std::string directory;      ///< holds their budgets; empty: there are no other sessions
  std::string tenant;         ///< secret of its tenant on this node; empty: not known
  uint64_t sizeRevision = 0;  ///< of the session's sizes
  ThingLimits limits = ThingLimits::ofHost();
  uint64_t sessionHostBytes = 0;  ///< host memory that every session has from its start

  /// Key of the claim at gates; a session without others has its own.
  uint64_t key() const;
};

}  // namespace millpond::worker
