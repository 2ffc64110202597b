// SPDX-License-Identifier: Apache-2.0
// The common beginning of every entry point about graphs.
#pragma once

#include <algorithm>

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/graph.h"

namespace millpond::softgpu::api {

/// A call about graphs, which run one at a time: `body(Driver&)`.
template <typename Body>
CUresult withGraphs(Body body) noexcept {
  return withDriver([&](Driver& driver) -> CUresult {
    std::lock_guard lock(graphMutex());
    return body(driver);
  });
}

/// `body(Driver&, Graph&)`.
template <typename Body>
CUresult withGraph(CUgraph handle, Body body) noexcept {
  return withGraphs([&](Driver& driver) -> CUresult {
    const GraphPtr graph = driver.graphs().find(handle);
    return graph ? body(driver, *graph) : CUDA_ERROR_INVALID_VALUE;
  });
}

/// `body(Driver&, GraphNode&)`.
template <typename Body>
CUresult withNode(CUgraphNode handle, Body body) noexcept {
  return withGraphs([&](Driver& driver) -> CUresult {
    const std::shared_ptr<GraphNode> node = driver.graphNodes().find(handle);
    return node ? body(driver, *node) : CUDA_ERROR_INVALID_VALUE;
  });
}

/// `body(Driver&, GraphExec&)`.
template <typename Body>
CUresult withExec(CUgraphExec handle, Body body) noexcept {
  return withGraphs([&](Driver& driver) -> CUresult {
    const std::shared_ptr<GraphExec> exec = driver.graphExecs().find(handle);
    return exec ? body(driver, *exec) : CUDA_ERROR_INVALID_VALUE;
  });
}

/// The context of a node: the given one, or the calling thread's.
inline CUresult contextOf(Driver& driver, CUcontext handle, ContextPtr* context) {
  *context = handle ? driver.contexts().find(handle) : currentContext();
  if (!*context) return CUDA_ERROR_INVALID_CONTEXT;
  return checkAlive(*context);
}

inline bool hasConditions(const Graph& graph) {
  const ConditionsOf conditions(graph);
  return !conditions.all.empty();
}

inline bool hasMemory(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    const auto within = graphsIn(node->work);
    return std::holds_alternative<AllocationWork>(node->work) || std::holds_alternative<FreeWork>(node->work) ||
           std::any_of(within.begin(), within.end(), [](const GraphPtr& each) { return hasMemory(*each); });
  });
}

/// Whether there can be only one of it: it cannot be cloned, and only one executable graph can exist at a time.
inline bool isUnique(const Graph& graph) { return hasConditions(graph) || hasMemory(graph); }

/// Edges from nodes of `graph` to a new one. CUDA_ERROR_INVALID_VALUE for a node that is not in the graph.
inline CUresult edgesFrom(Driver& driver, const Graph& graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                          size_t count, std::vector<GraphNode::Edge>* edges) {
  if (count > 0 && !nodes) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const std::shared_ptr<GraphNode> node = driver.graphNodes().find(nodes[i]);
    if (!node || !graph.owns(node.get())) return CUDA_ERROR_INVALID_VALUE;
    for (const GraphNode::Edge& edge : *edges)
      if (edge.from == node.get()) return CUDA_ERROR_INVALID_VALUE;
    edges->push_back({node.get(), data ? data[i] : CUgraphEdgeData{}});
  }
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu::api
