// SPDX-License-Identifier: Apache-2.0
// Entry points: the nodes of graphs and their parameters.
#include <cstring>

#include "softgpu/driver/api/function.h"
#include "softgpu/driver/api/graphs/graph.h"
#include "softgpu/driver/api/graphs/node_work.h"
#include "softgpu/driver/api/memory/copy.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

CUDA_KERNEL_NODE_PARAMS upgrade(const CUDA_KERNEL_NODE_PARAMS_v1& params) {
  CUDA_KERNEL_NODE_PARAMS newer{};
  std::memcpy(&newer, &params, sizeof(params));
  return newer;
}

CUresult addNode(CUgraphNode* out, CUgraph hGraph, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
                 size_t count, CUgraphNodeParams* params) {
  return withGraph(hGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    if (!out || !params) return CUDA_ERROR_INVALID_VALUE;
    std::vector<GraphNode::Edge> after;
    if (CUresult result = edgesFrom(driver, graph, dependencies, data, count, &after)) return result;
    NodeWork work;
    if (CUresult result = workOf(driver, graph, after, *params, &work)) return result;
    for (const GraphNode::Edge& edge : after)
      if (!canConnect(edge.from->work, work, edge.data)) return CUDA_ERROR_INVALID_VALUE;
    *out = graph.add(std::move(work), std::move(after)).handle();
    return CUDA_SUCCESS;
  });
}

template <typename Fill>
CUresult addNodeOf(CUgraphNodeType type, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                   Fill fill) {
  CUgraphNodeParams params{};
  params.type = type;
  fill(params);
  return addNode(out, graph, dependencies, nullptr, count, &params);
}

/// Gives a node, of a graph or of an executable one, other parameters of the same kind.
CUresult setParams(GraphNode& node, Driver& driver, CUgraphNodeParams* params, CUgraphNodeType wanted) {
  if (!params || params->type != wanted || typeOf(node.work) != wanted) return CUDA_ERROR_INVALID_VALUE;
  if (wanted == CU_GRAPH_NODE_TYPE_MEM_ALLOC || wanted == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      wanted == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  if (CUresult result = workOf(driver, *node.graph, node.after, *params, &work)) return result;
  if (auto* kernel = std::get_if<KernelWork>(&work)) kernel->setAttributes(std::get<KernelWork>(node.work).attributes);
  node.work = std::move(work);
  return CUDA_SUCCESS;
}

CUresult setNode(CUgraphNode hNode, CUgraphNodeParams* params) {
  return withNode(hNode, [&](Driver& driver, GraphNode& node) -> CUresult {
    if (!params) return CUDA_ERROR_INVALID_VALUE;
    return setParams(node, driver, params, params->type);
  });
}

CUresult setInExec(CUgraphExec hExec, CUgraphNode hNode, CUgraphNodeParams* params) {
  return withExec(hExec, [&](Driver& driver, GraphExec& exec) -> CUresult {
    const auto origin = driver.graphNodes().find(hNode);
    GraphNode* node = origin ? exec.find(origin.get()) : nullptr;
    if (!node || !params) return CUDA_ERROR_INVALID_VALUE;
    const auto* fill = std::get_if<FillWork>(&node->work);
    if (fill && params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
      const auto& m = params->memset;
      const CUDA_MEMSET_NODE_PARAMS other{m.dst, m.pitch, m.value, m.elementSize, m.width, m.height};
      if (!canBecome(fill->params, other)) return CUDA_ERROR_INVALID_VALUE;
    }
    return setParams(*node, driver, params, params->type);
  });
}

/// Work of the expected kind: `body(const Work&, GraphNode&)`.
template <typename Work, typename Body>
CUresult get(CUgraphNode hNode, const void* out, Body body) {
  return withNode(hNode, [&](Driver&, GraphNode& node) -> CUresult {
    const auto* work = std::get_if<Work>(&node.work);
    if (!work || !out) return CUDA_ERROR_INVALID_VALUE;
    body(*work, node);
    return CUDA_SUCCESS;
  });
}

CUDA_KERNEL_NODE_PARAMS kernelParams(const KernelWork& work, GraphNode& node) {
  const LaunchShape& shape = work.launch.shape;
  node.parameterPointers.clear();
  for (const auto& parameter : work.launch.function->info().parameters)
    node.parameterPointers.push_back(const_cast<std::byte*>(work.launch.parameters.data()) + parameter.offset);
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = work.handle;
  params.gridDimX = shape.grid.x;
  params.gridDimY = shape.grid.y;
  params.gridDimZ = shape.grid.z;
  params.blockDimX = shape.block.x;
  params.blockDimY = shape.block.y;
  params.blockDimZ = shape.block.z;
  params.sharedMemBytes = shape.dynamicSharedBytes;
  params.kernelParams = node.parameterPointers.data();
  params.ctx = work.contextHandle;
  return params;
}

}  // namespace

extern "C" {

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return addNode(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}
CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams) {
  return addNode(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}
CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) { return setNode(hNode, nodeParams); }
CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return setInExec(hGraphExec, hNode, nodeParams);
}
CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return withNode(hNode, [&](Driver&, GraphNode& node) -> CUresult {
    if (!type) return CUDA_ERROR_INVALID_VALUE;
    *type = typeOf(node.work);
    return CUDA_SUCCESS;
  });
}

// Kernels

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS newer = upgrade(*nodeParams);
  return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &newer);
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return addNodeOf(CU_GRAPH_NODE_TYPE_KERNEL, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) { std::memcpy(&p.kernel, nodeParams, sizeof(*nodeParams)); });
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return get<KernelWork>(hNode, nodeParams, [&](const KernelWork& work, GraphNode& node) {
    const CUDA_KERNEL_NODE_PARAMS params = kernelParams(work, node);
    std::memcpy(nodeParams, &params, sizeof(*nodeParams));
  });
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return get<KernelWork>(hNode, nodeParams,
                         [&](const KernelWork& work, GraphNode& node) { *nodeParams = kernelParams(work, node); });
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS newer = upgrade(*nodeParams);
  return cuGraphKernelNodeSetParams_v2(hNode, &newer);
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  std::memcpy(&params.kernel, nodeParams, sizeof(*nodeParams));
  return setNode(hNode, &params);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS newer = upgrade(*nodeParams);
  return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &newer);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  std::memcpy(&params.kernel, nodeParams, sizeof(*nodeParams));
  return setInExec(hGraphExec, hNode, &params);
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue* value_out) {
  return get<KernelWork>(hNode, value_out, [&](const KernelWork& work, GraphNode&) {
    *value_out = {};
    for (const CUlaunchAttribute& each : work.attributes)
      if (each.id == attr) *value_out = each.value;
  });
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue* value) {
  return withNode(hNode, [&](Driver&, GraphNode& node) -> CUresult {
    auto* work = std::get_if<KernelWork>(&node.work);
    if (!work || !value) return CUDA_ERROR_INVALID_VALUE;
    CUlaunchAttribute attribute{};
    attribute.id = attr;
    attribute.value = *value;
    std::vector<CUlaunchAttribute> all = work->attributes;
    std::erase_if(all, [&](const CUlaunchAttribute& each) { return each.id == attr; });
    all.push_back(attribute);
    work->setAttributes(std::move(all));
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return withNode(dst, [&](Driver& driver, GraphNode& node) -> CUresult {
    const auto from = driver.graphNodes().find(src);
    auto* to = std::get_if<KernelWork>(&node.work);
    if (!from || !to || !std::holds_alternative<KernelWork>(from->work)) return CUDA_ERROR_INVALID_VALUE;
    to->setAttributes(std::get<KernelWork>(from->work).attributes);
    return CUDA_SUCCESS;
  });
}

// Copies and fills

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  if (!copyParams) return CUDA_ERROR_INVALID_VALUE;
  return addNodeOf(CU_GRAPH_NODE_TYPE_MEMCPY, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) {
                     p.memcpy.copyCtx = ctx;
                     p.memcpy.copyParams = *copyParams;
                   });
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return get<CopyWork>(hNode, nodeParams, [&](const CopyWork& work, GraphNode&) { *nodeParams = work.params; });
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy.copyParams = *nodeParams;
  return setNode(hNode, &params);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D* copyParams,
                                        CUcontext ctx) {
  if (!copyParams) return CUDA_ERROR_INVALID_VALUE;
  // A card refuses this, whichever memory it is.
  if (copyParams->srcMemoryType == CU_MEMORYTYPE_HOST && copyParams->dstMemoryType == CU_MEMORYTYPE_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy.copyCtx = ctx;
  params.memcpy.copyParams = *copyParams;
  return setInExec(hGraphExec, hNode, &params);
}
CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  if (!memsetParams) return CUDA_ERROR_INVALID_VALUE;
  return addNodeOf(CU_GRAPH_NODE_TYPE_MEMSET, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) {
                     std::memcpy(&p.memset, memsetParams, sizeof(*memsetParams));
                     p.memset.ctx = ctx;
                   });
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return get<FillWork>(hNode, nodeParams, [&](const FillWork& work, GraphNode&) { *nodeParams = work.params; });
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  std::memcpy(&params.memset, nodeParams, sizeof(*nodeParams));
  return setNode(hNode, &params);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  if (!memsetParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  std::memcpy(&params.memset, memsetParams, sizeof(*memsetParams));
  params.memset.ctx = ctx;
  return setInExec(hGraphExec, hNode, &params);
}

// Host functions

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return addNodeOf(CU_GRAPH_NODE_TYPE_HOST, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) {
                     p.host = {nodeParams->fn, nodeParams->userData};
                   });
}
CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return get<HostWork>(hNode, nodeParams, [&](const HostWork& work, GraphNode&) {
    nodeParams->fn = work.function;
    nodeParams->userData = work.data;
  });
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_HOST;
  params.host = {nodeParams->fn, nodeParams->userData};
  return setNode(hNode, &params);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_HOST;
  params.host = {nodeParams->fn, nodeParams->userData};
  return setInExec(hGraphExec, hNode, &params);
}

// Child graphs, and empty nodes

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
  return addNodeOf(CU_GRAPH_NODE_TYPE_GRAPH, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) {
                     p.graph.graph = childGraph;
                     p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
                   });
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return get<ChildWork>(hNode, phGraph, [&](const ChildWork& work, GraphNode&) { *phGraph = work.graph->handle(); });
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
  return withExec(hGraphExec, [&](Driver& driver, GraphExec& exec) -> CUresult {
    const auto origin = driver.graphNodes().find(hNode);
    const GraphPtr graph = driver.graphs().find(childGraph);
    GraphNode* node = origin ? exec.find(origin.get()) : nullptr;
    if (!node || !graph) return CUDA_ERROR_INVALID_VALUE;
    return exec.updateChild(*node, *graph);
  });
}
CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                             size_t numDependencies) {
  return addNodeOf(CU_GRAPH_NODE_TYPE_EMPTY, phGraphNode, hGraph, dependencies, numDependencies,
                   [](CUgraphNodeParams&) {});
}

// Events

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                   size_t numDependencies, CUevent event) {
  return addNodeOf(CU_GRAPH_NODE_TYPE_EVENT_RECORD, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) { p.eventRecord.event = event; });
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, CUevent event) {
  return addNodeOf(CU_GRAPH_NODE_TYPE_WAIT_EVENT, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) { p.eventWait.event = event; });
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get<EventWork>(hNode, event_out, [&](const EventWork& work, GraphNode&) { *event_out = work.handle; });
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get<EventWork>(hNode, event_out, [&](const EventWork& work, GraphNode&) { *event_out = work.handle; });
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  params.eventRecord.event = event;
  return setNode(hNode, &params);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  params.eventWait.event = event;
  return setNode(hNode, &params);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  params.eventRecord.event = event;
  return setInExec(hGraphExec, hNode, &params);
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  params.eventWait.event = event;
  return setInExec(hGraphExec, hNode, &params);
}

// Words of memory

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return addNodeOf(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) { std::memcpy(&p.memOp, nodeParams, sizeof(*nodeParams)); });
}
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return get<WordsWork>(hNode, nodeParams_out, [&](const WordsWork& work, GraphNode&) {
    *nodeParams_out = {};
    nodeParams_out->ctx = work.context->handle();
    nodeParams_out->count = static_cast<unsigned>(work.operations.size());
    nodeParams_out->paramArray = const_cast<CUstreamBatchMemOpParams*>(work.operations.data());
  });
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  std::memcpy(&params.memOp, nodeParams, sizeof(*nodeParams));
  return setNode(hNode, &params);
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  std::memcpy(&params.memOp, nodeParams, sizeof(*nodeParams));
  return setInExec(hGraphExec, hNode, &params);
}

// Memory

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  std::memcpy(&params.alloc, nodeParams, sizeof(*nodeParams));
  const CUresult result = addNode(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &params);
  if (result == CUDA_SUCCESS) nodeParams->dptr = params.alloc.dptr;
  return result;
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return get<AllocationWork>(hNode, params_out, [&](const AllocationWork& work, GraphNode&) {
    *params_out = work.params;
    params_out->accessDescs = work.access.empty() ? nullptr : work.access.data();
  });
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                               size_t numDependencies, CUdeviceptr dptr) {
  return addNodeOf(CU_GRAPH_NODE_TYPE_MEM_FREE, phGraphNode, hGraph, dependencies, numDependencies,
                   [&](CUgraphNodeParams& p) { p.free.dptr = dptr; });
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return get<FreeWork>(hNode, dptr_out, [&](const FreeWork& work, GraphNode&) { *dptr_out = work.address; });
}

}  // extern "C"
