// SPDX-License-Identifier: Apache-2.0
// The number of graph nodes of a session, which counts for its claim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "worker/commands/graphs/graph_table.h"
#include "worker/core/claim_counts.h"

namespace millpond::worker {

class GraphNodeCount {
 public:
  GraphNodeCount(ClaimCounts& counts, const GraphTable& graphs) : counts_(counts), graphs_(graphs) {}

  /// Nodes counted for an executable graph, or for a root graph with all graphs in it.
  uint64_t of(uint64_t graph) const;
  /// Called before the driver creates that many. Returns false if the claim would exceed its limit. Afterwards call
  /// `keep` with their graph, or `drop` if they were not created.
  bool take(uint64_t nodes);
  void keep(uint64_t owner);
  void drop();
  /// That graph is gone.
  void give(uint64_t owner);

  /// Attributes the nodes of one graph to another.
  void move(uint64_t from, uint64_t to);

  /// Counts the nodes that a command adds to the open captures, as far as known; `body`: of the command. Returns false
  /// if the claim would exceed its limit.
  bool admitCaptured(cmd::Op op, std::span<const std::byte> body);
  /// No capture is open: remaining nodes belonged to captures that ended with their streams.
  void dropCaptured();
  /// The captured nodes are in that graph.
  void keepCaptured(uint64_t graph);

 private:
  uint64_t ownerOf(uint64_t graph) const {
    const GraphTable::Graph* known = graphs_.graph(graph);
    return known ? known->root : graph;
  }

  ClaimCounts& counts_;
  const GraphTable& graphs_;
  std::unordered_map<uint64_t, uint64_t> nodes_;  ///< by graph or executable graph
};

}  // namespace millpond::worker
