// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs: their creation and end, and their parameters and attributes, in graphs and in executable graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/commands/graphs/graph_clones.h"
#include "worker/commands/graphs/graph_contents.h"
#include "worker/commands/graphs/graph_execs.h"
#include "worker/commands/graphs/graph_node_count.h"
#include "worker/commands/graphs/graph_node_reader.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/commands/memory/memory_operations.h"
#include "worker/commands/modules/functions.h"
#include "worker/core/session_part.h"
#include "worker/memory/host_runs.h"

namespace millpond::worker {

class GraphNodeCommands : private SessionPart {
 public:
  GraphNodeCommands(SessionCore& session, Functions& functions, MemoryOperations& operations, HostRuns& hostRuns,
                    GraphTable& graphs, GraphNodeCount& nodeCount, GraphClones& clones, GraphContents& contents,
                    GraphNodeReader& reader, GraphExecs& execs)
      : SessionPart(session),
        functions_(functions),
        operations_(operations),
        hostRuns_(hostRuns),
        graphs_(graphs),
        nodeCount_(nodeCount),
        clones_(clones),
        contents_(contents),
        reader_(reader),
        execs_(execs) {}

  CUresult onGraphAddNode(const cmd::Decoded<cmd::GraphAddNode>& command);
  CUresult onGraphDestroyNode(const cmd::Decoded<cmd::GraphDestroyNode>& command);
  CUresult onGraphEnableNode(const cmd::Decoded<cmd::GraphEnableNode>& command);
  CUresult onGraphGetNode(const cmd::Decoded<cmd::GraphGetNode>& command);
  CUresult onGraphNodeAttribute(const cmd::Decoded<cmd::GraphNodeAttribute>& command);
  CUresult onGraphNodeType(const cmd::Decoded<cmd::GraphNodeType>& command);
  CUresult onGraphSetNode(const cmd::Decoded<cmd::GraphSetNode>& command);
  CUresult onGraphUpdateNode(const cmd::Decoded<cmd::GraphUpdateNode>& command);

 private:
  CUresult writeKernel(const GraphTable::Node& node, graph::NodeRecord& record, std::vector<std::byte>& rest);
  /// The number of an object of the session; 0 for any other.
  uint64_t wireOf(HandleKind kind, const void* object);

  Functions& functions_;
  MemoryOperations& operations_;
  HostRuns& hostRuns_;
  GraphTable& graphs_;
  GraphNodeCount& nodeCount_;
  GraphClones& clones_;
  GraphContents& contents_;
  GraphNodeReader& reader_;
  GraphExecs& execs_;
};

}  // namespace millpond::worker
