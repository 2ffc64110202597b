// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_table.h"

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "testing/check.h"

namespace millpond::worker {
namespace {

CUgraph graphHandle(uintptr_t n) { return reinterpret_cast<CUgraph>(n * 64); }
CUgraphNode nodeHandle(uintptr_t n) { return reinterpret_cast<CUgraphNode>(n * 64 + 8); }

std::span<const std::byte> wireBytes(const std::vector<uint64_t>& numbers) { return std::as_bytes(std::span(numbers)); }

TEST("dependencies are nodes of the graph, with as many edges as nodes") {
  GraphTable table;
  const uint64_t first = table.adopt(graphHandle(1)), second = table.adopt(graphHandle(2));
  const std::vector<uint64_t> own{table.adopt(first, nodeHandle(1)), table.adopt(first, nodeHandle(2))};
  const std::vector<uint64_t> mixed{own[0], table.adopt(second, nodeHandle(3))};
  const std::vector<CUgraphEdgeData> twoEdges(2);
  const auto edges = std::as_bytes(std::span(twoEdges));
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> data;
  CHECK(table.dependencies(first, wireBytes(own), {}, false, nodes, data));
  CHECK(nodes == (std::vector<CUgraphNode>{nodeHandle(1), nodeHandle(2)}));
  CHECK(data.empty());
  nodes.clear();
  CHECK(table.dependencies(first, wireBytes(own), edges, true, nodes, data));
  CHECK_EQ(data.size(), 2u);
  CHECK(table.dependencies(0, wireBytes(mixed), {}, false, nodes, data));
  CHECK(!table.dependencies(first, wireBytes(mixed), {}, false, nodes, data));
  CHECK(!table.dependencies(first, wireBytes({own[0], own[1] + 1}), {}, false, nodes, data));
  CHECK(!table.dependencies(first, wireBytes({first}), {}, false, nodes, data));
  // Their lengths do not match.
  CHECK(!table.dependencies(first, wireBytes(own).first(12), {}, false, nodes, data));
  CHECK(!table.dependencies(first, wireBytes(own), edges, false, nodes, data));
  CHECK(!table.dependencies(first, wireBytes(own), edges.first(edges.size() - 1), true, nodes, data));
  CHECK(!table.dependencies(first, wireBytes(own), {}, true, nodes, data));
}

TEST("a conditional handle ends with its graph") {
  GraphTable table;
  const uint64_t first = table.adopt(graphHandle(1)), second = table.adopt(graphHandle(2));
  table.addCondition(11, first);
  table.addCondition(12, second);
  CHECK(table.hasCondition(11));
  CHECK(!table.hasCondition(13));
  table.dropGraph(first);
  CHECK(!table.hasCondition(11));
  table.dropConditions();
  CHECK(!table.hasCondition(11));
  CHECK(table.hasCondition(12));
}

TEST("a graph in a node belongs to the node's root, and ends with it") {
  GraphTable table;
  const uint64_t root = table.adopt(graphHandle(1));
  const uint64_t holder = table.adopt(root, nodeHandle(1));
  table.adoptChild(holder, graphHandle(2));
  table.adoptChild(holder, graphHandle(2));
  const uint64_t child = table.numberOf(graphHandle(2));
  CHECK_EQ(table.graph(child)->root, root);
  CHECK_EQ(table.node(holder)->children.size(), 1u);
  CHECK(table.graph(root)->special.contains(holder));
  const uint64_t inner = table.adopt(child, nodeHandle(2));
  table.adoptChild(inner, graphHandle(3));
  CHECK_EQ(table.graph(table.numberOf(graphHandle(3)))->root, root);
  CHECK(table.isWithin(table.numberOf(graphHandle(3)), root));
  CHECK(table.isWithin(child, child));
  CHECK(!table.isWithin(root, child));
  table.dropGraph(root);
  CHECK(!table.graph(child));
  CHECK(!table.node(inner));
  CHECK_EQ(table.numberOf(graphHandle(3)), 0u);
  CHECK(table.empty());
}

TEST("the memory that launches use is listed a page at a time, with its total") {
  constexpr uint32_t kAll = graph::kSourcePage + 3;
  ExecContents contents;
  for (uint32_t i = 0; i < kAll; ++i) {
    auto stage = std::make_shared<GraphStage>();
    stage->number = 100 + i;
    stage->toDevice = i % 2 == 0;
    stage->address = uint64_t{i} * 4096;
    stage->bytes = stage->width = 16;
    contents.stages[i] = stage;
  }
  uint32_t count = 0;
  const auto first = contents.sources(0, count);
  CHECK_EQ(first.size(), graph::kSourcePage);
  CHECK_EQ(count, kAll);
  CHECK_EQ(first[0].number, 100u);
  // Memory that launches write only has an address.
  CHECK_EQ(first[1].number, 0u);
  CHECK_EQ(first[1].address, 4096u);
  const auto rest = contents.sources(graph::kSourcePage, count);
  CHECK_EQ(rest.size(), 3u);
  CHECK_EQ(count, kAll);
  CHECK_EQ(rest[0].address, uint64_t{graph::kSourcePage} * 4096);
  CHECK(contents.sources(kAll, count).empty());
}

}  // namespace
}  // namespace millpond::worker
