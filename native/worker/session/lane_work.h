// SPDX-License-Identifier: Apache-2.0
// Which lane of a device a command occupies, and about how long: for the gates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "protocol/gen/commands.h"
#include "worker/gate/cost_history.h"
#include "worker/gate/lane.h"

namespace millpond::worker {

struct LaneWork {
  gate::Lane lane = gate::Lane::kCompute;
  gate::Work work;
  uint64_t stream = 0;
};

/// Whether an address is in pinned host memory of the session.
using IsHost = std::function<bool(wire::Address)>;

/// `head`: the part of the command that is read only once. None if the command occupies no lane.
std::optional<LaneWork> laneWorkOf(cmd::Op op, std::span<const std::byte> head, const IsHost& isHost);
/// A copy between host and device.
gate::Work copyWork(cmd::Op op, uint64_t bytes);

}  // namespace millpond::worker
