// SPDX-License-Identifier: Apache-2.0
// Launches, and queries about them.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "cuda/launch_attribute.h"
#include "worker/commands/memory/memory_operations.h"
#include "worker/commands/modules/functions.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class Launches : private SessionPart {
 public:
  Launches(SessionCore& session, Functions& functions, MemoryOperations& operations)
      : SessionPart(session), functions_(functions), operations_(operations) {}

  CUresult onLaunch(const cmd::Decoded<cmd::Launch>& command);
  CUresult onLaunchLimits(const cmd::Decoded<cmd::LaunchLimits>& command);
  CUresult onClusterOccupancy(const cmd::Decoded<cmd::ClusterOccupancy>& command);

 private:
  /// Attributes of a launch, with the driver's own events; with room for one more.
  struct LaunchAttributes {
    std::array<CUlaunchAttribute, kMaxLaunchAttributes + 1> all;
    size_t count = 0;
  };

  CUresult launchAttributes(std::span<const std::byte> bytes, LaunchAttributes& out);

  Functions& functions_;
  MemoryOperations& operations_;
};

}  // namespace millpond::worker
