// SPDX-License-Identifier: Apache-2.0
// Entry points: graphs as a whole, the order in them, and user objects.
#include "softgpu/driver/api/graphs/graph.h"

#include <fstream>

#include "softgpu/driver/graphs/capture.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

/// Returns a list as the driver does: without `out` only its length, otherwise as many elements as there is room for,
/// and null for the rest.
template <typename T>
CUresult handOut(const std::vector<T>& all, T* out, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (out) {
    for (size_t i = 0; i < *count; ++i) out[i] = i < all.size() ? all[i] : T{};
    *count = std::min(*count, all.size());
  } else {
    *count = all.size();
  }
  return CUDA_SUCCESS;
}

struct EdgeList {
  std::vector<CUgraphNode> from, to;
  std::vector<CUgraphEdgeData> data;
  bool isPlain = true;

  void add(const GraphNode& node, const GraphNode::Edge& edge) {
    from.push_back(edge.from->handle());
    to.push_back(node.handle());
    data.push_back(edge.data);
    isPlain = isPlain && edge.data.type == 0 && edge.data.from_port == 0 && edge.data.to_port == 0;
  }
};

EdgeList edgesOf(const Graph& graph) {
  EdgeList list;
  for (const auto& node : graph.nodes())
    for (const GraphNode::Edge& edge : node->after) list.add(*node, edge);
  return list;
}

CUresult getEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  return withGraph(hGraph, [&](Driver&, Graph& graph) -> CUresult {
    if (!from != !to || !count) return CUDA_ERROR_INVALID_VALUE;
    const EdgeList list = edgesOf(graph);
    if (from && !data && !list.isPlain) return CUDA_ERROR_LOSSY_QUERY;
    const size_t room = *count;
    if (data && from) {
      size_t n = room;
      handOut(list.data, data, &n);
    }
    if (from) {
      size_t n = room;
      handOut(list.from, from, &n);
    }
    return handOut(list.to, to, count);
  });
}

CUresult getDependencies(CUgraphNode hNode, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count, bool dependents) {
  return withNode(hNode, [&](Driver&, GraphNode& node) -> CUresult {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    EdgeList list;
    for (const auto& each : node.graph->nodes())
      for (const GraphNode::Edge& edge : each->after)
        if (dependents ? edge.from == &node : each.get() == &node) list.add(*each, edge);
    if (nodes && !data && !list.isPlain) return CUDA_ERROR_LOSSY_QUERY;
    if (data && nodes) {
      size_t n = *count;
      handOut(list.data, data, &n);
    }
    return handOut(dependents ? list.to : list.from, nodes, count);
  });
}

template <typename Change>
CUresult changeEdges(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to, size_t count, Change change) {
  return withGraph(hGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    if (count > 0 && (!from || !to)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const auto a = driver.graphNodes().find(from[i]);
      const auto b = driver.graphNodes().find(to[i]);
      if (!a || !b) return CUDA_ERROR_INVALID_VALUE;
      if (CUresult result = change(graph, *a, *b, i)) return result;
    }
    return CUDA_SUCCESS;
  });
}

CUresult addDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                         size_t count) {
  return changeEdges(hGraph, from, to, count, [&](Graph& graph, GraphNode& a, GraphNode& b, size_t i) {
    return graph.addEdge(a, b, data ? data[i] : CUgraphEdgeData{});
  });
}

CUresult removeDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                            size_t count) {
  return changeEdges(hGraph, from, to, count, [&](Graph& graph, GraphNode& a, GraphNode& b, size_t i) -> CUresult {
    if (hasMemory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
    return graph.removeEdge(a, b, data ? data[i] : CUgraphEdgeData{});
  });
}

const char* nameOf(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY: return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET: return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST: return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH: return "GRAPH";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return "CONDITIONAL";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return "BATCH_MEM_OP";
    default: return "EMPTY";
  }
}

/// Writes the parts of a node's label that the flags request. A handle is an address of this process.
void describe(std::ostream& out, const GraphNode& node, unsigned flags) {
  const auto has = [&](unsigned flag) { return (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | flag)) != 0; };
  if (has(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) out << "\\nhandle " << static_cast<const void*>(&node);
  if (const auto* fill = std::get_if<FillWork>(&node.work); fill && has(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
    out << "\\n" << fill->params.width << " x " << fill->params.height << " of " << fill->params.value;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return withGraphs([&](Driver& driver) -> CUresult {
    if (!phGraph || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *phGraph = driver.graphs().add(std::make_shared<Graph>());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return withGraph(hGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    if (graph.parent || isBeingCaptured(graph)) return CUDA_ERROR_INVALID_VALUE;
    driver.graphs().remove(hGraph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return withGraph(originalGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    if (!phGraphClone) return CUDA_ERROR_INVALID_VALUE;
    if (isUnique(graph)) return CUDA_ERROR_NOT_SUPPORTED;
    *phGraphClone = driver.graphs().add(graph.clone());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  return withGraph(hClonedGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    const auto original = driver.graphNodes().find(hOriginalNode);
    if (!phNode || !original) return CUDA_ERROR_INVALID_VALUE;
    GraphNode* found = graph.madeFrom(original.get());
    *phNode = found ? found->handle() : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return withGraph(hGraph, [&](Driver&, Graph& graph) {
    std::vector<CUgraphNode> all;
    for (const auto& node : graph.nodes()) all.push_back(node->handle());
    return handOut(all, nodes, numNodes);
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return withGraph(hGraph, [&](Driver&, Graph& graph) {
    std::vector<CUgraphNode> all;
    for (const auto& node : graph.nodes())
      if (node->after.empty()) all.push_back(node->handle());
    return handOut(all, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return getEdges(hGraph, from, to, nullptr, numEdges);
}
CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData,
                            size_t* numEdges) {
  return getEdges(hGraph, from, to, edgeData, numEdges);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies, size_t* numDependencies) {
  return getDependencies(hNode, dependencies, nullptr, numDependencies, false);
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies, CUgraphEdgeData* edgeData,
                                       size_t* numDependencies) {
  return getDependencies(hNode, dependencies, edgeData, numDependencies, false);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes, size_t* numDependentNodes) {
  return getDependencies(hNode, dependentNodes, nullptr, numDependentNodes, true);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes, CUgraphEdgeData* edgeData,
                                         size_t* numDependentNodes) {
  return getDependencies(hNode, dependentNodes, edgeData, numDependentNodes, true);
}
CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return addDependencies(hGraph, from, to, nullptr, numDependencies);
}
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return addDependencies(hGraph, from, to, edgeData, numDependencies);
}
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return removeDependencies(hGraph, from, to, nullptr, numDependencies);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return removeDependencies(hGraph, from, to, edgeData, numDependencies);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return withNode(hNode, [&](Driver&, GraphNode& node) -> CUresult {
    if (hasMemory(*node.graph)) return CUDA_ERROR_NOT_SUPPORTED;
    node.graph->remove(node);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  return withGraph(hGraph, [&](Driver&, Graph& graph) -> CUresult {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    std::ofstream file(path);
    file << "digraph graph_1 {\n";
    std::map<const GraphNode*, size_t> places;
    for (const auto& node : graph.nodes()) {
      const size_t place = places.size();
      places[node.get()] = place;
      file << "  node_" << place << " [label=\"" << place << "\\n" << nameOf(typeOf(node->work));
      describe(file, *node, flags);
      file << "\"];\n";
    }
    for (const auto& node : graph.nodes())
      for (const GraphNode::Edge& edge : node->after)
        file << "  node_" << places[edge.from] << " -> node_" << places[node.get()] << ";\n";
    file << "}\n";
    file.close();
    return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  });
}

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags) {
  return withGraphs([&](Driver& driver) -> CUresult {
    if (!object_out || !destroy || initialRefcount == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
      return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<UserObject>(destroy, ptr);
    object->programReferences = initialRefcount;
    *object_out = driver.userObjects().add(object);
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRetain(CUuserObject hObject, unsigned int count) {
  return withGraphs([&](Driver& driver) -> CUresult {
    const auto object = driver.userObjects().find(hObject);
    if (!object || count == 0) return CUDA_ERROR_INVALID_VALUE;
    object->programReferences += count;
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRelease(CUuserObject hObject, unsigned int count) {
  return withGraphs([&](Driver& driver) -> CUresult {
    const auto object = driver.userObjects().find(hObject);
    if (!object || count == 0 || count > object->programReferences) return CUDA_ERROR_INVALID_VALUE;
    object->programReferences -= count;
    // Graphs may still hold it.
    if (object->programReferences == 0) driver.userObjects().remove(hObject);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphRetainUserObject(CUgraph hGraph, CUuserObject hObject, unsigned int count, unsigned int flags) {
  return withGraph(hGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    const auto object = driver.userObjects().find(hObject);
    if (!object || count == 0 || (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)))
      return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_GRAPH_USER_OBJECT_MOVE) {
      if (count > object->programReferences) return CUDA_ERROR_INVALID_VALUE;
      object->programReferences -= count;
      if (object->programReferences == 0) driver.userObjects().remove(hObject);
    }
    graph.userObjects[object] += count;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphReleaseUserObject(CUgraph hGraph, CUuserObject hObject, unsigned int count) {
  return withGraph(hGraph, [&](Driver&, Graph& graph) -> CUresult {
    const auto held = std::find_if(graph.userObjects.begin(), graph.userObjects.end(), [&](const auto& each) {
      return reinterpret_cast<CUuserObject>(each.first.get()) == hObject;
    });
    if (held == graph.userObjects.end() || count == 0 || count > held->second) return CUDA_ERROR_INVALID_VALUE;
    held->second -= count;
    if (held->second == 0) graph.userObjects.erase(held);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph, CUcontext ctx,
                                        unsigned int defaultLaunchValue, unsigned int flags) {
  return withGraph(hGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    if (!pHandle_out || (flags & ~static_cast<unsigned>(CU_GRAPH_COND_ASSIGN_DEFAULT))) return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context;
    if (CUresult result = contextOf(driver, ctx, &context)) return result;
    static CUgraphConditionalHandle last = 0;
    graph.conditions.push_back({++last, defaultLaunchValue, flags != 0});
    *pHandle_out = last;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return withDevice(device, [](Driver&, Device& of) {
    GraphFootprint::of(of.ordinal()).trim();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return withDevice(device, [&](Driver&, Device& of) -> CUresult {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    const GraphFootprint& footprint = GraphFootprint::of(of.ordinal());
    auto* bytes = static_cast<cuuint64_t*>(value);
    switch (attr) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: *bytes = footprint.used().now; return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: *bytes = footprint.used().high; return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *bytes = footprint.reserved().now; return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *bytes = footprint.reserved().high; return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return withDevice(device, [&](Driver&, Device& of) -> CUresult {
    if (!value || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    GraphFootprint& footprint = GraphFootprint::of(of.ordinal());
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
      footprint.resetUsedMark();
    else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
      footprint.resetReservedMark();
    else
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
