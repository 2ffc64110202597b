// SPDX-License-Identifier: Apache-2.0
// What launches of a graph need beside the driver, found by walking its nodes: memory and functions of the client.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/commands/graphs/graph_table.h"
#include "worker/device/driver.h"

namespace millpond::worker {

class GraphContents {
 public:
  GraphContents(const Driver& driver, GraphTable& graphs) : driver_(driver), graphs_(graphs) {}

  std::shared_ptr<const ExecContents> of(uint64_t graph) {
    auto contents = std::make_shared<ExecContents>();
    collect(graph, {}, *contents);
    return contents;
  }
  /// Adds the contents of one more graph.
  void add(uint64_t graph, ExecContents& contents) { collect(graph, {}, contents); }

 private:
  /// Nodes that are done before another begins: copies to the client, and functions of the client.
  struct Before {
    std::vector<uint64_t> landings;
    std::vector<uint64_t> calls;
  };

  /// `outside`: nodes of the graphs around it.
  void collect(uint64_t graph, const Before& outside, ExecContents& contents);
  void addUnder(uint64_t graph, Before& before);

  const Driver& driver_;
  GraphTable& graphs_;
};

}  // namespace millpond::worker
