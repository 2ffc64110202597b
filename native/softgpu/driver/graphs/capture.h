// SPDX-License-Identifier: Apache-2.0
// Stream capture: the work of a stream becomes nodes of a graph instead of being executed.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/graphs/graph.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// One capture, from its begin to its end. Guarded by graphMutex().
struct Capture {
  uint64_t id = 0;
  GraphPtr graph;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  ContextPtr context;
  QueuePtr origin;
  std::vector<QueuePtr> queues;  ///< that take part, the origin first
  bool isInvalid = false;
  /// The graph was the program's before, and stays.
  bool isIntoGraph = false;
};

/// The effect of capture on a call that gives a stream work. `node`: it became a node; otherwise the caller continues.
/// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED if the capture is invalid.
CUresult captureWork(const StreamTarget& stream, NodeWork work, bool* captured);

/// Whether the stream is being captured, or was until something went wrong.
bool isCapturing(const QueuePtr& queue);
/// Whether it is captured into a graph that the program has.
bool isCapturingIntoGraph(const QueuePtr& queue);
/// Ends all hope of a capture that the queue takes part in.
void invalidateCapture(const QueuePtr& queue);
/// The result for the legacy stream while a stream of the context that it waits for is being captured.
CUresult checkLegacy(const Context& context, bool invalidate);
/// A call that could disturb a capture: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when the thread's mode forbids it, and the
/// captures that do are lost.
CUresult checkUnsafeCall();
/// For a call that waits for all of a context: no mode allows it while any of its streams is captured, and those captures
/// are lost.
CUresult checkContextWait(const Context& context);
/// For calls that wait for or ask about a stream: checkUnsafeCall, and never while that stream is captured.
CUresult checkWait(const StreamTarget& stream);

CUresult beginCapture(const StreamTarget& stream, GraphPtr into, std::vector<GraphNode::Edge> after,
                      CUstreamCaptureMode mode);
CUresult endCapture(const StreamTarget& stream, GraphPtr* graph);
/// Streams that wait for an event that was recorded in a capture join it. `captured`: that was it.
CUresult captureWait(const StreamTarget& stream, const std::shared_ptr<Event>& event, bool external, CUevent handle,
                     bool* captured);
CUresult captureRecord(const StreamTarget& stream, const std::shared_ptr<Event>& event, bool external, CUevent handle,
                       bool* captured);
/// The stream is destroyed.
void forgetQueue(const QueuePtr& queue);

/// The calling thread's mode.
CUstreamCaptureMode& captureModeOfThread();

}  // namespace millpond::softgpu
