// SPDX-License-Identifier: Apache-2.0
// Entry points: executable graphs.
#include "softgpu/driver/api/graphs/graph.h"
#include "softgpu/driver/graphs/capture.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

constexpr unsigned long long kFlags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

/// Whether the nodes are of kinds that a device can run repeatedly by itself.
bool isBody(const Graph& graph) {
  const auto isAllowed = [](const auto& node) {
    const bool isForHost =
        std::holds_alternative<HostWork>(node->work) || std::holds_alternative<EventWork>(node->work) ||
        std::holds_alternative<AllocationWork>(node->work) || std::holds_alternative<FreeWork>(node->work);
    const auto within = graphsIn(node->work);
    return !isForHost && std::all_of(within.begin(), within.end(), [](const GraphPtr& each) { return isBody(*each); });
  };
  return std::all_of(graph.nodes().begin(), graph.nodes().end(), isAllowed);
}

bool areBodiesAllowed(const Graph& graph) {
  const auto isAllowed = [](const auto& node) {
    const bool isConditional = std::holds_alternative<ConditionalWork>(node->work);
    const auto within = graphsIn(node->work);
    return std::all_of(within.begin(), within.end(),
                       [&](const GraphPtr& each) { return isConditional ? isBody(*each) : areBodiesAllowed(*each); });
  };
  return std::all_of(graph.nodes().begin(), graph.nodes().end(), isAllowed);
}

CUresult checkConditions(const Graph& graph, CUgraphInstantiateResult* why) {
  const ConditionsOf conditions(graph);
  if (conditions.all.empty()) return CUDA_SUCCESS;
  const bool isUsed = std::all_of(conditions.all.begin(), conditions.all.end(),
                                  [&](const Condition& each) { return conditions.asked.contains(each.handle); });
  if (!isUsed) {
    *why = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  return areBodiesAllowed(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult instantiate(CUgraphExec* exec, CUgraph hGraph, unsigned long long flags, CUgraphInstantiateResult* why) {
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  return withGraph(hGraph, [&](Driver& driver, Graph& graph) -> CUresult {
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = checkUnsafeCall()) return result;
    // Launches from the device need the device runtime.
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return CUDA_ERROR_NOT_SUPPORTED;
    if (flags & ~kFlags) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = checkConditions(graph, why)) return result;
    if (isUnique(graph) && !graph.executable.expired()) return CUDA_ERROR_NOT_SUPPORTED;
    const auto made = std::make_shared<GraphExec>(graph, flags);
    graph.executable = made;
    *exec = driver.graphExecs().add(made);
    *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
  });
}

CUresult update(CUgraphExec hExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* info) {
  return withExec(hExec, [&](Driver& driver, GraphExec& exec) -> CUresult {
    const GraphPtr graph = driver.graphs().find(hGraph);
    if (!graph || !info) return CUDA_ERROR_INVALID_VALUE;
    const GraphNode* error = nullptr;
    const GraphNode* errorFrom = nullptr;
    info->result = exec.update(*graph, &error, &errorFrom);
    info->errorNode = error ? error->handle() : nullptr;
    info->errorFromNode = errorFrom ? errorFrom->handle() : nullptr;
    return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  });
}

CUresult withExecOnStream(CUgraphExec hExec, CUstream hStream, bool launches) {
  return withStream(hStream, [&](Driver& driver, const StreamTarget& target) -> CUresult {
    std::lock_guard lock(graphMutex());
    const auto exec = driver.graphExecs().find(hExec);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    if (isCapturing(target.queue)) {
      if (!launches) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      const GraphPtr child = exec->asGraph();
      if (!child) return CUDA_ERROR_NOT_SUPPORTED;
      bool captured = false;
      return captureWork(target, ChildWork{child}, &captured);
    }
    if (launches) return exec->launch(target);
    exec->upload();
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                            size_t bufferSize) {
  return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                               size_t bufferSize) {
  if (phErrorNode) *phErrorNode = nullptr;
  if (logBuffer && bufferSize > 0) *logBuffer = 0;
  return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) return CUDA_ERROR_INVALID_VALUE;
  CUgraphInstantiateResult why;
  return instantiate(phGraphExec, hGraph, flags, &why);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (!instantiateParams) return CUDA_ERROR_INVALID_VALUE;
  instantiateParams->hErrNode_out = nullptr;
  return instantiate(phGraphExec, hGraph, instantiateParams->flags, &instantiateParams->result_out);
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  return withExec(hGraphExec, [&](Driver&, GraphExec& exec) -> CUresult {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec.flags();
    return CUDA_SUCCESS;
  });
}

// Queued work runs to completion.
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return withGraphs([&](Driver& driver) -> CUresult {
    return driver.graphExecs().remove(hGraphExec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return withExecOnStream(hGraphExec, hStream, false);
}
CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) { return withExecOnStream(hGraphExec, hStream, true); }

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = update(hGraphExec, hGraph, &info);
  if (hErrorNode_out) *hErrorNode_out = info.errorNode;
  if (updateResult_out) *updateResult_out = info.result;
  return result;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
  return update(hGraphExec, hGraph, resultInfo);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  return withExec(hGraphExec, [&](Driver& driver, GraphExec& exec) -> CUresult {
    const auto origin = driver.graphNodes().find(hNode);
    GraphNode* node = origin ? exec.find(origin.get()) : nullptr;
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    const CUgraphNodeType type = typeOf(node->work);
    if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_MEMSET)
      return CUDA_ERROR_INVALID_VALUE;
    node->isEnabled = isEnabled != 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  return withExec(hGraphExec, [&](Driver& driver, GraphExec& exec) -> CUresult {
    const auto origin = driver.graphNodes().find(hNode);
    const GraphNode* node = origin ? exec.find(origin.get()) : nullptr;
    if (!node || !isEnabled) return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = node->isEnabled;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
