// SPDX-License-Identifier: Apache-2.0
// Clones of graphs: the driver clones its nodes, and the worker its own state of them.
#pragma once

#include <cstdint>

#include "worker/commands/graphs/graph_node_count.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class GraphClones : private SessionPart {
 public:
  GraphClones(SessionCore& session, GraphTable& graphs, GraphNodeCount& nodeCount)
      : SessionPart(session), graphs_(graphs), nodeCount_(nodeCount) {}

  CUresult onGraphClone(const cmd::Decoded<cmd::GraphClone>& command);
  CUresult onGraphFindInClone(const cmd::Decoded<cmd::GraphFindInClone>& command);

  /// Copies the worker's state of a graph's nodes for its clone.
  void copySpecials(uint64_t from, uint64_t to);

 private:
  GraphTable& graphs_;
  GraphNodeCount& nodeCount_;
};

}  // namespace millpond::worker
