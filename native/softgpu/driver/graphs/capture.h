// SPDX-License-Identifier: Apache-2.0
// Stream capture: the work of a stream becomes nodes of a graph instead of being executed.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/graphs/graph.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// One capture, from its beginning to its end. Guarded by graphMutex().
struct Capture {
  uint64_t id = 0;
  GraphPtr graph;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  ContextPtr context;
  QueuePtr origin;
  std::vector<QueuePtr> queues;  ///< queues that take part, the origin first
  bool isInvalid = false;
  /// The graph belonged to the program before, and stays.
  bool isIntoGraph = false;
};

/// The effect of capture on a call that gives a stream work. `node`: the work became a node; otherwise the caller
/// continues. CUDA_ERROR_STREAM_CAPTURE_INVALIDATED if the capture is invalid.
CUresult captureWork(const StreamTarget& stream, NodeWork work, bool* captured);

/// Whether the stream is being captured, or was until the capture became invalid.
bool isCapturing(const QueuePtr& queue);
/// Whether it is captured into a graph of the program.
bool isCapturingIntoGraph(const QueuePtr& queue);
/// Whether a capture makes this graph, which then belongs to it.
bool isBeingCaptured(const Graph& graph);
/// Invalidates a capture in which the queue takes part.
void invalidateCapture(const QueuePtr& queue);
/// The result for the legacy stream while a stream of the context that it waits for is being captured.
CUresult checkLegacy(const Context& context, bool invalidate);
/// A call that could disturb a capture: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the thread's mode forbids it; the
/// captures that forbid it are invalidated.
CUresult checkUnsafeCall();
/// For a call that waits for a whole context: no mode allows it while any of the context's streams is captured, and
/// those captures are invalidated.
CUresult checkContextWait(const Context& context);
/// For calls that wait for or query a stream: checkUnsafeCall, and additionally refused while that stream is captured.
CUresult checkWait(const StreamTarget& stream);

CUresult beginCapture(const StreamTarget& stream, GraphPtr into, std::vector<GraphNode::Edge> after,
                      CUstreamCaptureMode mode);
CUresult endCapture(const StreamTarget& stream, GraphPtr* graph);
/// Streams that wait for an event recorded in a capture join it. `captured`: this was such an event.
CUresult captureWait(const StreamTarget& stream, const std::shared_ptr<Event>& event, bool external, CUevent handle,
                     bool* captured);
CUresult captureRecord(const StreamTarget& stream, const std::shared_ptr<Event>& event, bool external, CUevent handle,
                       bool* captured);
/// The stream is destroyed.
void forgetQueue(const QueuePtr& queue);

/// The calling thread's mode.
CUstreamCaptureMode& captureModeOfThread();

}  // namespace millpond::softgpu
