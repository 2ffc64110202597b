// SPDX-License-Identifier: Apache-2.0
// Stages: pinned memory of this worker in place of the client's, for copies of graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "worker/commands/graphs/graph_table.h"
#include "worker/commands/memory/host_buffers.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class GraphStages : private SessionPart {
 public:
  GraphStages(SessionCore& session, GraphTable& graphs, HostBuffers& buffers)
      : SessionPart(session), graphs_(graphs), buffers_(buffers) {}

  /// For an end of a copy in memory of the client alone. `original`: the copy as given by the client. The stage ends
  /// before this session's buffers.
  CUresult make(const Box& box, bool toDevice, const CUDA_MEMCPY3D& original, std::shared_ptr<GraphStage>& out);

  CUresult onGraphSource(const cmd::Decoded<cmd::GraphSource>& command);

 private:
  GraphTable& graphs_;
  HostBuffers& buffers_;
  std::unordered_map<uint64_t, std::weak_ptr<GraphStage>> all_;  ///< by number
};

}  // namespace millpond::worker
