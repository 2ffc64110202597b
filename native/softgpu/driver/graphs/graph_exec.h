// SPDX-License-Identifier: Apache-2.0
// Executable graphs: a graph as it was when it was instantiated, launched as a whole.
#pragma once

#include "softgpu/driver/graphs/graph.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// Whether the fill of an executable graph can get other parameters: one of several rows keeps its shape.
bool canBecome(const CUDA_MEMSET_NODE_PARAMS& from, const CUDA_MEMSET_NODE_PARAMS& to);

class GraphExec {
 public:
  GraphExec(const Graph& graph, unsigned long long flags) : graph_(graph.copy(true)), flags_(flags) {}

  unsigned long long flags() const { return flags_; }
  /// The node made from a node of the graph from which this was instantiated; null: there is none.
  GraphNode* find(const GraphNode* origin) { return graph_->madeFrom(origin); }
  /// A clone as a child graph: the result of a launch on a captured stream. Null if conditions prevent it.
  GraphPtr asGraph() const;
  /// Accounts for the memory of its allocations, for the next launch or another one.
  void upload() const;
  /// Queues all of it, after the stream's work and after the previous launch.
  CUresult launch(const StreamTarget& stream);
  /// Adopts the parameters of a graph with the same nodes and order.
  CUgraphExecUpdateResult update(const Graph& graph, const GraphNode** error, const GraphNode** errorFrom);
  /// Same, for a child graph of this one.
  CUresult updateChild(GraphNode& node, const Graph& graph);

 private:
  GraphPtr graph_;
  const unsigned long long flags_;
  OperationPtr last_;  // end of the previous launch
};

}  // namespace millpond::softgpu
