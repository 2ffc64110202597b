// SPDX-License-Identifier: Apache-2.0
// The number of graph nodes of a session, which counts for its claim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "worker/commands/graphs/graph_table.h"
#include "worker/core/claim_counts.h"
#include "worker/core/host_charge.h"

namespace millpond::worker {

/// A number of nodes, and the host memory that they take.
struct GraphNodes {
  /// Host memory of each node in the driver and in the worker's tables, in addition to its parameters.
  static constexpr uint64_t kNodeBytes = 2048;

  uint64_t nodes = 0;
  uint64_t bytes = 0;

  static GraphNodes one(uint64_t parameterBytes) { return {1, kNodeBytes + parameterBytes}; }
  GraphNodes& operator+=(const GraphNodes& more) {
    nodes += more.nodes;
    bytes += more.bytes;
    return *this;
  }
};

class GraphNodeCount {
 public:
  GraphNodeCount(ClaimCounts& counts, const GraphTable& graphs) : counts_(counts), host_(counts), graphs_(graphs) {}

  /// Nodes counted for an executable graph, or for a root graph with all graphs in it.
  GraphNodes of(uint64_t graph) const;
  /// Called before the driver creates that many. Returns false if the claim would exceed its limit. Afterwards call
  /// `keep` with their graph, or `drop` if they were not created.
  bool take(GraphNodes nodes);
  void keep(uint64_t owner);
  void drop();
  /// That graph is gone.
  void give(uint64_t owner);

  /// Attributes the nodes of one graph to another.
  void move(uint64_t from, uint64_t to);

  /// Other parameters of a node in a graph or executable graph: their size counts if it exceeds that of the previous
  /// ones. Returns false if the claim would exceed its limit.
  bool grow(uint64_t owner, uint64_t node, uint64_t parameterBytes);

  /// Counts the nodes that a command adds to the open captures, as far as known; `head`: of the command's body, which has
  /// that many bytes. Returns false if the claim would exceed its limit.
  bool admitCaptured(cmd::Op op, std::span<const std::byte> head, uint64_t bytes);
  /// No capture is open: remaining nodes belonged to captures that ended with their streams.
  void dropCaptured();
  /// The captured nodes are in that graph.
  void keepCaptured(uint64_t graph);

 private:
  uint64_t ownerOf(uint64_t graph) const {
    const GraphTable::Graph* known = graphs_.graph(graph);
    return known ? known->root : graph;
  }

  /// Charges host memory, in steps that make it cheap.
  bool charge(uint64_t bytes);
  void release(GraphNodes nodes);

  ClaimCounts& counts_;
  HostCharge host_;
  uint64_t bytes_ = 0;  ///< of all nodes
  const GraphTable& graphs_;
  std::unordered_map<uint64_t, GraphNodes> nodes_;             ///< by graph or executable graph
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> largest_;  ///< parameters that were set, by owner and node
};

}  // namespace millpond::worker
