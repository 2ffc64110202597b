// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_table.h"

#include <algorithm>
#include <cstring>

namespace millpond::worker {

void GraphTable::adoptChild(uint64_t node, CUgraph child) {
  const uint64_t owner = nodes_.at(node).graph;
  const uint64_t root = graphs_.at(owner).root;
  const uint64_t number = adopt(child, root);
  graphs_.at(number).root = root;
  auto& children = nodes_.at(node).children;
  if (std::find(children.begin(), children.end(), number) == children.end()) children.push_back(number);
  markSpecial(node);
}

bool GraphTable::isWithin(uint64_t inner, uint64_t outer) const {
  if (inner == outer) return true;
  const Graph* around = graph(outer);
  if (!around) return false;
  return std::any_of(around->special.begin(), around->special.end(), [&](uint64_t each) {
    const std::vector<uint64_t>& children = nodes_.at(each).children;
    return std::any_of(children.begin(), children.end(), [&](uint64_t child) { return isWithin(inner, child); });
  });
}

bool GraphTable::dependencies(uint64_t graph, std::span<const std::byte> nodes, std::span<const std::byte> edges,
                              bool hasEdges, std::vector<CUgraphNode>& out, std::vector<CUgraphEdgeData>& data) {
  const size_t count = nodes.size() / sizeof(uint64_t);
  if (nodes.size() % sizeof(uint64_t) || edges.size() != (hasEdges ? count * sizeof(CUgraphEdgeData) : 0)) return false;
  for (size_t i = 0; i < count; ++i) {
    uint64_t number = 0;
    std::memcpy(&number, nodes.data() + i * sizeof(number), sizeof(number));
    const Node* node = this->node(number);
    // The driver refuses a node of another graph; a node that does not exist must not reach it.
    if (!node || (graph && node->graph != graph)) return false;
    out.push_back(node->handle);
  }
  data.resize(hasEdges ? count : 0);
  if (!data.empty()) std::memcpy(data.data(), edges.data(), edges.size());
  return true;
}

std::vector<graph::Source> ExecContents::sources(uint32_t first, uint32_t& count) const {
  std::vector<graph::Source> page;
  count = 0;
  for (const auto& [node, stage] : stages) {
    if (count >= first && page.size() < graph::kSourcePage)
      page.push_back(
          {stage->toDevice ? stage->number : 0, stage->address, stage->bytes, stage->hasGaps() ? 1u : 0u, 0});
    ++count;
  }
  return page;
}

}  // namespace millpond::worker
