// SPDX-License-Identifier: Apache-2.0
// Whole graphs: their creation and end, their dependencies, conditions and pictures, and their memory.
#pragma once

#include <string>

#include "worker/commands/graphs/graph_node_count.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/commands/memory/host_memory.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class GraphCommands : private SessionPart {
 public:
  GraphCommands(SessionCore& session, GraphTable& graphs, GraphNodeCount& nodeCount, HostMemory& hostMemory)
      : SessionPart(session), graphs_(graphs), nodeCount_(nodeCount), hostMemory_(hostMemory) {}

  CUresult onGraphConditional(const cmd::Decoded<cmd::GraphConditional>& command);
  CUresult onGraphCreate(const cmd::Decoded<cmd::GraphCreate>& command);
  CUresult onGraphDepend(const cmd::Decoded<cmd::GraphDepend>& command);
  CUresult onGraphDestroy(const cmd::Decoded<cmd::GraphDestroy>& command);
  CUresult onGraphDot(const cmd::Decoded<cmd::GraphDot>& command);
  CUresult onGraphList(const cmd::Decoded<cmd::GraphList>& command);
  CUresult onGraphMemory(const cmd::Decoded<cmd::GraphMemory>& command);

 private:
  GraphTable& graphs_;
  GraphNodeCount& nodeCount_;
  HostMemory& hostMemory_;
  std::string dot_;  ///< the description that the client is reading
};

}  // namespace millpond::worker
