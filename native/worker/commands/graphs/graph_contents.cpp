// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_contents.h"

#include <algorithm>
#include <map>
#include <set>

namespace millpond::worker {

void GraphContents::addUnder(uint64_t number, Before& before) {
  const GraphTable::Graph* graph = graphs_.graph(number);
  if (!graph) return;
  for (const uint64_t each : graph->special) {
    const GraphTable::Node& node = *graphs_.node(each);
    if (node.stage && !node.stage->toDevice) before.landings.push_back(each);
    if (node.call) before.calls.push_back(each);
    for (const uint64_t child : node.children) addUnder(child, before);
  }
}

void GraphContents::collect(uint64_t number, const Before& outside, ExecContents& contents) {
  const GraphTable::Graph* graph = graphs_.graph(number);
  if (!graph || graph->special.empty()) return;
  const std::vector<uint64_t> special(graph->special.begin(), graph->special.end());
  std::map<uint64_t, std::vector<uint64_t>> after;  // node → its dependencies
  const bool asks = std::any_of(special.begin(), special.end(), [&](uint64_t each) {
    return graphs_.node(each)->call || !graphs_.node(each)->children.empty();
  });
  size_t count = 0;
  if (asks && driver_.cuGraphGetEdges_v2(graph->handle, nullptr, nullptr, nullptr, &count) == CUDA_SUCCESS && count) {
    std::vector<CUgraphNode> from(count), to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (driver_.cuGraphGetEdges_v2(graph->handle, from.data(), to.data(), data.data(), &count) == CUDA_SUCCESS)
      for (size_t i = 0; i < count; ++i) after[graphs_.adopt(number, to[i])].push_back(graphs_.adopt(number, from[i]));
  }
  const auto beforeOf = [&](uint64_t node) {
    Before before = outside;
    std::set<uint64_t> seen;
    std::vector<uint64_t> open = after[node];
    while (!open.empty()) {
      const uint64_t each = open.back();
      open.pop_back();
      if (!seen.insert(each).second) continue;
      const GraphTable::Node& entry = *graphs_.node(each);
      if (entry.stage && !entry.stage->toDevice) before.landings.push_back(each);
      if (entry.call) before.calls.push_back(each);
      for (const uint64_t child : entry.children) addUnder(child, before);
      const auto& next = after[each];
      open.insert(open.end(), next.begin(), next.end());
    }
    return before;
  };
  for (const uint64_t each : special) {
    const GraphTable::Node& node = *graphs_.node(each);
    if (node.stage) contents.stages[each] = node.stage;
    if (node.allocation) contents.allocations.push_back(node.allocation);
    if (node.call) {
      contents.calls[each] = node.call;
      contents.before[each] = beforeOf(each).landings;
      contents.after[each];
    }
    if (node.stage && node.stage->toDevice) {
      Before before = beforeOf(each);
      contents.before[each] = std::move(before.landings);
      for (const uint64_t call : before.calls) contents.after[call].push_back(each);
    }
    if (!node.children.empty()) {
      const Before before = beforeOf(each);
      const std::vector<uint64_t> children = node.children;
      for (const uint64_t child : children) collect(child, before, contents);
    }
  }
}

}  // namespace millpond::worker
