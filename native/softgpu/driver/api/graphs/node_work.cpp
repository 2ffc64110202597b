// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/api/graphs/node_work.h"

#include <cstring>

#include "softgpu/driver/api/function.h"
#include "softgpu/driver/api/graphs/graph.h"
#include "softgpu/driver/api/memory/copy.h"

namespace millpond::softgpu::api {
namespace {

CUresult kernelWork(Driver& driver, const CUDA_KERNEL_NODE_PARAMS& params, NodeWork* work) {
  KernelWork kernel;
  kernel.handle = params.func ? params.func : reinterpret_cast<CUfunction>(params.kern);
  if (CUresult result = contextOf(driver, params.ctx, &kernel.context)) return result;
  kernel.contextHandle = kernel.context->handle();
  std::shared_ptr<Function> function;
  if (CUresult result = resolveFunction(driver, kernel.handle, kernel.context, &function)) return result;
  const LaunchShape shape{{params.gridDimX, params.gridDimY, params.gridDimZ},
                          {params.blockDimX, params.blockDimY, params.blockDimZ},
                          params.sharedMemBytes};
  if (CUresult result =
          prepareLaunch(kernel.context, function, shape, params.kernelParams, params.extra, &kernel.launch))
    return result;
  *work = std::move(kernel);
  return CUDA_SUCCESS;
}

/// Versions of a structure that differ only in name.
template <typename To, typename From>
To sameAs(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

CUresult copyWork(Driver& driver, const CUDA_MEMCPY3D& params, CUcontext context, NodeWork* work) {
  CopyWork copy;
  copy.params = params;
  if (CUresult result = contextOf(driver, context, &copy.context)) return result;
  copy.contextHandle = copy.context->handle();
  if (CUresult result = resolveCopy(params, &copy.copy)) return result;
  PreparedTransfer checked;
  if (CUresult result = prepareCopy(copy.context, copy.copy, &checked)) return result;
  *work = std::move(copy);
  return CUDA_SUCCESS;
}

CUresult fillWork(Driver& driver, const CUDA_MEMSET_NODE_PARAMS& params, CUcontext context, NodeWork* work) {
  FillWork fill;
  fill.params = params;
  if (CUresult result = contextOf(driver, context, &fill.context)) return result;
  PreparedTransfer checked;
  if (CUresult result = prepareFill(fill.context, fillOf(params), &checked)) return result;
  *work = std::move(fill);
  return CUDA_SUCCESS;
}

CUresult wordsWork(Driver& driver, const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, NodeWork* work) {
  if (params.flags != 0 || params.count > kMostWords || (params.count > 0 && !params.paramArray))
    return CUDA_ERROR_INVALID_VALUE;
  WordsWork words;
  if (CUresult result = contextOf(driver, params.ctx, &words.context)) return result;
  words.operations.assign(params.paramArray, params.paramArray + params.count);
  PreparedTransfer checked;
  if (CUresult result = prepareWords(words.context, words.operations, &checked)) return result;
  *work = std::move(words);
  return CUDA_SUCCESS;
}

CUresult eventWork(Driver& driver, CUevent handle, bool records, NodeWork* work) {
  EventWork event{handle, driver.events().find(handle), records};
  if (!event.event) return CUDA_ERROR_INVALID_HANDLE;
  *work = std::move(event);
  return CUDA_SUCCESS;
}

CUresult childWork(Driver& driver, const Graph& into, const CUDA_CHILD_GRAPH_NODE_PARAMS& params, NodeWork* work) {
  const GraphPtr graph = driver.graphs().find(params.graph);
  const bool known = params.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE ||
                     params.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  // A graph cannot become part of itself. A card's driver crashes.
  if (!graph || !known || into.isWithin(*graph)) return CUDA_ERROR_INVALID_VALUE;
  if (hasConditions(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  if (params.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
    if (graph->parent) return CUDA_ERROR_INVALID_VALUE;
    *work = ChildWork{graph};
    return CUDA_SUCCESS;
  }
  if (hasMemory(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  ChildWork child{graph->clone()};
  driver.graphs().add(child.graph);
  *work = std::move(child);
  return CUDA_SUCCESS;
}

/// The address of a new allocation of a graph, whose node follows `after`: it reuses memory that was freed before that.
void placeAllocation(Graph& graph, const std::vector<GraphNode::Edge>& after, unsigned device, uint64_t bytes,
                     AllocationWork* allocation) {
  std::shared_ptr<GraphSpace>& space = graph.spaces[device];
  if (!space) space = std::make_shared<GraphSpace>(device);
  std::vector<GraphSpace::Place> taken;
  std::vector<const AllocationWork*> free;
  for (const auto& node : graph.nodes()) {
    const auto* other = std::get_if<AllocationWork>(&node->work);
    if (!other || other->space != space) continue;
    if (graph.isFreedBefore(*node, after))
      free.push_back(other);
    else
      taken.push_back(other->place);
  }
  allocation->space = space;
  allocation->place = GraphSpace::find(bytes, std::move(taken));
  for (const AllocationWork* other : free)
    if (other->place.begin == allocation->place.begin && other->memory->bytes() >= bytes)
      allocation->memory = other->memory;
}

CUresult allocationWork(Driver& driver, Graph& graph, const std::vector<GraphNode::Edge>& after,
                        CUDA_MEM_ALLOC_NODE_PARAMS& params, NodeWork* work) {
  const CUmemPoolProps& pool = params.poolProps;
  if (params.bytesize == 0 || pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE || pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = driver.device(pool.location.id);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (params.accessDescCount > 0 && !params.accessDescs) return CUDA_ERROR_INVALID_VALUE;
  const ContextPtr& context = device->primaryContext();
  if (CUresult result = checkAlive(context)) return result;
  AllocationWork allocation;
  allocation.access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
  placeAllocation(graph, after, device->ordinal(), params.bytesize, &allocation);
  if (!allocation.memory) {
    if (CUresult result = GraphMemory::allocate(context, params.bytesize, &allocation.memory)) return result;
  }
  params.dptr = allocation.memory->address();
  allocation.params = params;
  *work = std::move(allocation);
  return CUDA_SUCCESS;
}

/// Whether a graph may free the memory: a node allocates it, of this graph or another, and none of this graph frees it.
bool canFree(const Graph& graph, uint64_t address) {
  return GraphMemory::isOne(address) && std::none_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
           const auto* other = std::get_if<FreeWork>(&node->work);
           return other && other->address == address;
         });
}

bool isSize(CUgraphConditionalNodeType type, unsigned size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF: return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE: return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH: return size > 0;
  }
  return false;
}

/// The outermost graph around `graph`.
const Graph& outermost(const Graph& graph) {
  const Graph* at = &graph;
  while (at->parent) at = at->parent->graph;
  return *at;
}

CUresult conditionalWork(Driver& driver, const Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params, NodeWork* work) {
  if (!isSize(params.type, params.size)) return CUDA_ERROR_INVALID_VALUE;
  const ConditionsOf known(outermost(graph));
  const bool isKnown = std::any_of(known.all.begin(), known.all.end(),
                                   [&](const Condition& each) { return each.handle == params.handle; });
  if (!isKnown || known.asked.contains(params.handle)) return CUDA_ERROR_INVALID_VALUE;
  ConditionalWork conditional;
  conditional.condition = params.handle;
  conditional.type = params.type;
  if (CUresult result = contextOf(driver, params.ctx, &conditional.context)) return result;
  for (unsigned i = 0; i < params.size; ++i) {
    conditional.bodies.push_back(std::make_shared<Graph>());
    conditional.handles.push_back(driver.graphs().add(conditional.bodies.back()));
  }
  params.phGraph_out = conditional.handles.data();
  *work = std::move(conditional);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult workOf(Driver& driver, Graph& graph, const std::vector<GraphNode::Edge>& after, CUgraphNodeParams& params,
                NodeWork* work) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return kernelWork(driver, sameAs<CUDA_KERNEL_NODE_PARAMS>(params.kernel), work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (params.memcpy.flags != 0) return CUDA_ERROR_INVALID_VALUE;
      return copyWork(driver, params.memcpy.copyParams, params.memcpy.copyCtx, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& m = params.memset;
      return fillWork(driver, {m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, m.ctx, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      if (!params.host.fn) return CUDA_ERROR_INVALID_VALUE;
      *work = HostWork{params.host.fn, params.host.userData};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH: return childWork(driver, graph, params.graph, work);
    case CU_GRAPH_NODE_TYPE_EMPTY: *work = EmptyWork{}; return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return eventWork(driver, params.eventWait.event, false, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return eventWork(driver, params.eventRecord.event, true, work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      auto allocation = sameAs<CUDA_MEM_ALLOC_NODE_PARAMS>(params.alloc);
      const CUresult result = allocationWork(driver, graph, after, allocation, work);
      params.alloc.dptr = allocation.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (!canFree(graph, params.free.dptr)) return CUDA_ERROR_INVALID_VALUE;
      *work = FreeWork{params.free.dptr};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return conditionalWork(driver, graph, params.conditional, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return wordsWork(driver, sameAs<CUDA_BATCH_MEM_OP_NODE_PARAMS>(params.memOp), work);
    default:
      // External semaphores: there are none on this device.
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace millpond::softgpu::api
