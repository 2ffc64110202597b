// SPDX-License-Identifier: Apache-2.0
// The numbers of graphs, their nodes and conditional handles, and the worker's own state of nodes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "cuda/graph_node.h"
#include "worker/core/callbacks.h"
#include "worker/memory/graph_allocation.h"

namespace millpond::worker {

/// Pinned memory of this worker that represents memory of the client in a copy of a graph (a stage).
struct GraphStage {
  uint64_t number = 0;
  bool toDevice = false;
  uint64_t address = 0;  ///< of the client: first byte
  uint64_t width = 0;    ///< bytes of a row
  uint64_t height = 1;
  uint64_t depth = 1;
  uint64_t rowStride = 0;
  uint64_t sliceStride = 0;
  uint64_t bytes = 0;           ///< from the first to the last byte
  std::byte* memory = nullptr;  ///< that many
  CUDA_MEMCPY3D original{};     ///< as given by the client: returned to it only

  /// Whether only a part of its bytes is copied.
  bool hasGaps() const { return rowStride != width || (depth != 1 && sliceStride != width * height); }
  /// Calls `each(begin, end)` for the parts of [first, first + count) that the copy reads or writes.
  template <typename Each>
  void eachRow(uint64_t first, uint64_t count, Each&& each) const {
    const uint64_t behind = first + count;
    const auto part = [&](uint64_t begin, uint64_t size) {
      const uint64_t from = std::max(begin, first);
      const uint64_t to = std::min(begin + size, behind);
      if (from < to) each(from, to);
    };
    if (!hasGaps()) return part(address, bytes);
    for (uint64_t slice = 0; slice < depth; ++slice) {
      const uint64_t start = address + slice * sliceStride;
      const bool isBehind = rowStride != 0 && first > start + width;
      for (uint64_t row = isBehind ? (first - start - width) / rowStride : 0; row < height; ++row) {
        const uint64_t begin = start + row * rowStride;
        if (begin >= behind) break;
        part(begin, width);
      }
    }
  }
};

class GraphTable {
 public:
  struct Node {
    CUgraphNode handle = nullptr;
    uint64_t graph = 0;
    std::shared_ptr<GraphStage> stage;
    const HostCall* call = nullptr;
    std::vector<uint64_t> children;  ///< graphs in it: a child graph, bodies
    std::shared_ptr<GraphAllocation> allocation;
    bool isPlain() const { return !stage && !call && children.empty() && !allocation; }
  };
  struct Graph {
    CUgraph handle = nullptr;
    uint64_t root = 0;  ///< the graph with which it ends, usually itself
    std::map<CUgraphNode, uint64_t> numbers;
    std::set<uint64_t> special;  ///< nodes that need more than the driver's handle
  };

  /// The number of a graph; a new one if it has none yet. `root` 0: it ends by itself.
  uint64_t adopt(CUgraph handle, uint64_t root = 0) {
    const auto known = graphNumbers_.find(handle);
    if (known != graphNumbers_.end()) return known->second;
    const uint64_t number = graph::number(graph::Tag::kGraph, ++last_);
    graphNumbers_[handle] = number;
    graphs_[number] = {handle, root ? root : number, {}, {}};
    return number;
  }
  /// The number of a node of that graph, which must be known.
  uint64_t adopt(uint64_t graph, CUgraphNode handle) {
    auto& numbers = graphs_.at(graph).numbers;
    const auto known = numbers.find(handle);
    if (known != numbers.end()) return known->second;
    const uint64_t number = graph::number(graph::Tag::kNode, ++last_);
    numbers[handle] = number;
    nodes_[number] = {handle, graph, {}, nullptr, {}, {}};
    return number;
  }
  Graph* graph(uint64_t number) {
    const auto found = graphs_.find(number);
    return found == graphs_.end() ? nullptr : &found->second;
  }
  const Graph* graph(uint64_t number) const {
    const auto found = graphs_.find(number);
    return found == graphs_.end() ? nullptr : &found->second;
  }
  Node* node(uint64_t number) {
    const auto found = nodes_.find(number);
    return found == nodes_.end() ? nullptr : &found->second;
  }
  /// Whether `inner` is that graph, or in one of its nodes.
  bool isWithin(uint64_t inner, uint64_t outer) const;
  /// 0 when it has none.
  uint64_t numberOf(CUgraph handle) const {
    const auto known = graphNumbers_.find(handle);
    return known == graphNumbers_.end() ? 0 : known->second;
  }
  void markSpecial(uint64_t node) {
    const Node& entry = nodes_.at(node);
    graphs_.at(entry.graph).special.insert(node);
  }
  /// Makes a root graph, with all graphs in it, part of a node of another one.
  void move(uint64_t graph, uint64_t node) {
    Node& owner = nodes_.at(node);
    const uint64_t root = graphs_.at(owner.graph).root;
    for (auto& [number, each] : graphs_)
      if (each.root == graph) each.root = root;
    owner.children.push_back(graph);
    markSpecial(node);
  }
  /// A graph in a node of another one: a child graph, or a body.
  void adoptChild(uint64_t node, CUgraph graph);
  /// The driver's handles of these nodes, of that graph (0: of any), and the data of their edges. Returns false if there
  /// is no such node.
  bool dependencies(uint64_t graph, std::span<const std::byte> nodes, std::span<const std::byte> edges, bool hasEdges,
                    std::vector<CUgraphNode>& out, std::vector<CUgraphEdgeData>& data);
  /// A conditional handle, made for that graph.
  void addCondition(CUgraphConditionalHandle handle, uint64_t graph) { conditions_[handle] = graph; }
  /// Whether it was made for a graph that still exists.
  bool hasCondition(CUgraphConditionalHandle handle) const {
    const auto known = conditions_.find(handle);
    return known != conditions_.end() && graph(known->second);
  }
  /// Forgets the conditional handles of graphs that have ended.
  void dropConditions() {
    std::erase_if(conditions_, [this](const auto& each) { return !graph(each.second); });
  }
  bool empty() const { return graphs_.empty(); }
  /// Forgets a graph, its nodes, and the graphs in them.
  void dropGraph(uint64_t number) {
    const auto found = graphs_.find(number);
    if (found == graphs_.end()) return;
    const Graph gone = std::move(found->second);
    graphNumbers_.erase(gone.handle);
    graphs_.erase(found);
    for (const auto& [handle, node] : gone.numbers) eraseNode(node);
  }
  void dropNode(uint64_t number) {
    const auto found = nodes_.find(number);
    if (found == nodes_.end()) return;
    if (Graph* owner = graph(found->second.graph)) {
      owner->numbers.erase(found->second.handle);
      owner->special.erase(number);
    }
    eraseNode(number);
  }
  uint64_t next(graph::Tag tag) { return graph::number(tag, ++last_); }

 private:
  void eraseNode(uint64_t number) {
    const auto found = nodes_.find(number);
    if (found == nodes_.end()) return;
    const std::vector<uint64_t> children = std::move(found->second.children);
    nodes_.erase(found);
    for (const uint64_t child : children) dropGraph(child);
  }

  uint64_t last_ = 0;
  std::unordered_map<CUgraph, uint64_t> graphNumbers_;
  std::unordered_map<uint64_t, Graph> graphs_;
  std::unordered_map<uint64_t, Node> nodes_;
  std::unordered_map<CUgraphConditionalHandle, uint64_t> conditions_;  ///< handle → graph that it was made for
};

/// Data that launches of an executable graph need beside the driver, by node of the graph from which it was
/// instantiated.
struct ExecContents {
  std::map<uint64_t, std::shared_ptr<GraphStage>> stages;
  std::map<uint64_t, const HostCall*> calls;
  /// Node of a call, or of a copy from the client → copies to the client that complete before it.
  std::map<uint64_t, std::vector<uint64_t>> before;
  std::map<uint64_t, std::vector<uint64_t>> after;  ///< node of a call → later copies from the client
  std::vector<std::shared_ptr<GraphAllocation>> allocations;

  uint32_t hostCopies() const {
    return static_cast<uint32_t>(
        std::count_if(calls.begin(), calls.end(), [](const auto& each) { return each.second->isCopy; }));
  }
  /// A page of the client memory that launches read and write; `count`: total number.
  std::vector<graph::Source> sources(uint32_t first, uint32_t& count) const;
  /// Allocations that outlive a launch: the program frees them, or another launch does.
  std::vector<std::shared_ptr<GraphAllocation>> kept() const {
    std::vector<std::shared_ptr<GraphAllocation>> out;
    for (const auto& each : allocations)
      if (!each->isFreedByGraph) out.push_back(each);
    return out;
  }
};

}  // namespace millpond::worker
