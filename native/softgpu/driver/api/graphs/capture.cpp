// SPDX-License-Identifier: Apache-2.0
// Entry points: stream capture.
#include "softgpu/driver/graphs/capture.h"
#include "base/thread_owned.h"
#include "softgpu/driver/api/graphs/graph.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

bool isMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

/// The memory that cuStreamGetCaptureInfo returned for the thread's last query.
struct Answer {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> data;
};

// Querying the legacy stream invalidates no capture, so the stream is not resolved as it is for work.
CUresult captureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                     const CUgraphNode** nodes, const CUgraphEdgeData** data, size_t* count) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    if (!stream || stream == CU_STREAM_LEGACY) {
      if (CUresult result = checkLegacy(*context, false)) return result;
      *status = CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    }
    StreamTarget target;
    if (CUresult result = resolveStream(stream, context, driver.streams(), &target)) return result;
    std::lock_guard lock(graphMutex());
    const CapturePoint& point = target.queue->capture;
    *status = !point                     ? CU_STREAM_CAPTURE_STATUS_NONE
              : point.capture->isInvalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    Answer& answer = millpond::threadOwned<Answer>();
    answer = {};
    bool isPlain = true;
    for (const GraphEdge& edge : point.after) {
      answer.nodes.push_back(edge.from->handle());
      answer.data.push_back(edge.data);
      isPlain = isPlain && edge.data.type == 0;
    }
    // Without an array for the edge data, that data would be lost.
    if (!isPlain && nodes && !data) return CUDA_ERROR_LOSSY_QUERY;
    if (id) *id = point.capture->id;
    if (graph) *graph = point.capture->graph->handle();
    if (nodes) *nodes = answer.nodes.data();
    if (data) *data = answer.data.data();
    if (count) *count = answer.nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult begin(CUstream stream, CUstreamCaptureMode mode) {
  return withStream(stream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!isMode(mode)) return CUDA_ERROR_INVALID_VALUE;
    return beginCapture(target, nullptr, {}, mode);
  });
}

CUresult updateDependencies(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count,
                            unsigned flags) {
  return withStream(stream, [&](Driver& driver, const StreamTarget& target) -> CUresult {
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(graphMutex());
    CapturePoint& point = target.queue->capture;
    if (!point) return CUDA_ERROR_ILLEGAL_STATE;
    if (point.capture->isInvalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<GraphEdge> edges;
    if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) edges = point.after;
    std::vector<GraphEdge> more;
    if (CUresult result = edgesFrom(driver, *point.capture->graph, nodes, data, count, &more)) return result;
    for (const GraphEdge& edge : more)
      if (std::none_of(edges.begin(), edges.end(), [&](const GraphEdge& each) { return each.from == edge.from; }))
        edges.push_back(edge);
    point.after = std::move(edges);
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture(CUstream hStream) { return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL); }

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) { return begin(hStream, mode); }

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  return withStream(hStream, [&](Driver& driver, const StreamTarget& target) -> CUresult {
    std::lock_guard lock(graphMutex());
    const GraphPtr graph = driver.graphs().find(hGraph);
    if (!graph || !isMode(mode)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<GraphEdge> edges;
    if (CUresult result = edgesFrom(driver, *graph, dependencies, dependencyData, numDependencies, &edges))
      return result;
    return beginCapture(target, graph, std::move(edges), mode);
  });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!phGraph && !isCapturingIntoGraph(target.queue)) return CUDA_ERROR_INVALID_VALUE;
    GraphPtr graph;
    const CUresult result = endCapture(target, &graph);
    if (phGraph) *phGraph = graph ? graph->handle() : nullptr;
    return result;
  });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return captureInfo(hStream, captureStatus, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out) {
  return captureInfo(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return captureInfo(hStream, captureStatus_out, id_out, graph_out, dependencies_out, nullptr, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  return captureInfo(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                     numDependencies_out);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies, size_t numDependencies,
                                           unsigned int flags) {
  return updateDependencies(hStream, dependencies, nullptr, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                              unsigned int flags) {
  return updateDependencies(hStream, dependencies, dependencyData, numDependencies, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return withDriver([&](Driver&) -> CUresult {
    if (!mode || !isMode(*mode)) return CUDA_ERROR_INVALID_VALUE;
    std::swap(captureModeOfThread(), *mode);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
