// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/graphs/capture.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "softgpu/driver/graphs/graph_handles.h"

namespace millpond::softgpu {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

/// Number of active captures: every call checks it, so that must cost nothing.
std::atomic<size_t> openCaptures = 0;

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& all = *std::make_unique<std::vector<std::shared_ptr<Capture>>>().release();
  return all;
}

uint64_t thisThread() {
  static std::atomic<uint64_t> last = 0;
  thread_local const uint64_t number = ++last;
  return number;
}

void join(const std::shared_ptr<Capture>& capture, const QueuePtr& queue) {
  if (queue->capture.capture == capture) return;
  queue->capture.capture = capture;
  queue->capture.after.clear();
  capture->queues.push_back(queue);
}

void addEdges(std::vector<GraphNode::Edge>& to, const std::vector<GraphNode::Edge>& from) {
  for (const GraphNode::Edge& edge : from)
    if (std::none_of(to.begin(), to.end(), [&](const GraphNode::Edge& each) { return each.from == edge.from; }))
      to.push_back(edge);
}

void close(const std::shared_ptr<Capture>& capture) {
  for (const QueuePtr& queue : capture->queues) queue->capture = {};
  std::erase(captures(), capture);
  openCaptures = captures().size();
}

/// Whether the origin waits for every node that a queue has reached.
bool allJoined(const Capture& capture) {
  std::set<const GraphNode*> reached;
  std::vector<const GraphNode*> open;
  for (const GraphNode::Edge& edge : capture.origin->capture.after) open.push_back(edge.from);
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    for (const GraphNode::Edge& edge : node->after) open.push_back(edge.from);
  }
  for (const QueuePtr& queue : capture.queues)
    for (const GraphNode::Edge& edge : queue->capture.after)
      if (!reached.contains(edge.from)) return false;
  return true;
}

}  // namespace

CUstreamCaptureMode& captureModeOfThread() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool isCapturing(const QueuePtr& queue) {
  if (openCaptures == 0) return false;
  const Lock lock(graphMutex());
  return static_cast<bool>(queue->capture);
}

bool isCapturingIntoGraph(const QueuePtr& queue) {
  const Lock lock(graphMutex());
  return queue->capture && queue->capture.capture->isIntoGraph;
}

bool isBeingCaptured(const Graph& graph) {
  const Lock lock(graphMutex());
  return std::any_of(captures().begin(), captures().end(),
                     [&](const auto& capture) { return !capture->isIntoGraph && capture->graph.get() == &graph; });
}

void invalidateCapture(const QueuePtr& queue) {
  const Lock lock(graphMutex());
  if (queue->capture) queue->capture.capture->isInvalid = true;
}

CUresult checkLegacy(const Context& context, bool invalidate) {
  if (openCaptures == 0) return CUDA_SUCCESS;
  const Lock lock(graphMutex());
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : captures()) {
    if (capture->context.get() != &context) continue;
    const bool isBlocking = std::any_of(capture->queues.begin(), capture->queues.end(),
                                        [](const QueuePtr& queue) { return queue->order == Queue::Order::blocking; });
    if (!isBlocking) continue;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (invalidate) capture->isInvalid = true;
  }
  return result;
}

CUresult checkUnsafeCall() {
  if (openCaptures == 0 || captureModeOfThread() == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const Lock lock(graphMutex());
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : captures()) {
    const bool mine = capture->thread == thisThread();
    const bool forbids = (mine && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
                         (!mine && captureModeOfThread() == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                          capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!forbids) continue;
    capture->isInvalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult checkContextWait(const Context& context) {
  if (openCaptures == 0) return CUDA_SUCCESS;
  const Lock lock(graphMutex());
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : captures()) {
    if (capture->context.get() != &context) continue;
    capture->isInvalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult checkWait(const StreamTarget& stream) {
  if (openCaptures == 0) return CUDA_SUCCESS;
  if (isCapturing(stream.queue)) {
    invalidateCapture(stream.queue);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return checkUnsafeCall();
}

CUresult captureWork(const StreamTarget& stream, NodeWork work, bool* captured) {
  *captured = false;
  if (openCaptures == 0) return CUDA_SUCCESS;
  const Lock lock(graphMutex());
  CapturePoint& point = stream.queue->capture;
  if (!point) return CUDA_SUCCESS;
  if (point.capture->isInvalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  GraphNode& node = point.capture->graph->add(std::move(work), point.after);
  point.after = {{&node, {}}};
  *captured = true;
  return CUDA_SUCCESS;
}

CUresult beginCapture(const StreamTarget& stream, GraphPtr into, std::vector<GraphNode::Edge> after,
                      CUstreamCaptureMode mode) {
  const Lock lock(graphMutex());
  // The legacy stream cannot be captured, nor one that is already being captured.
  if (stream.queue->order == Queue::Order::legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream.queue->capture) return CUDA_ERROR_ILLEGAL_STATE;
  static uint64_t lastId = 0;
  auto capture = std::make_shared<Capture>();
  capture->id = ++lastId;
  capture->isIntoGraph = into != nullptr;
  capture->graph = into ? std::move(into) : std::make_shared<Graph>();
  capture->mode = mode;
  capture->thread = thisThread();
  capture->context = stream.context;
  capture->origin = stream.queue;
  if (!capture->isIntoGraph) GraphHandles::instance().graphs.add(capture->graph);
  join(capture, stream.queue);
  stream.queue->capture.after = std::move(after);
  captures().push_back(capture);
  openCaptures = captures().size();
  return CUDA_SUCCESS;
}

CUresult endCapture(const StreamTarget& stream, GraphPtr* graph) {
  const Lock lock(graphMutex());
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.queue->capture.capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.queue) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  CUresult result = CUDA_SUCCESS;
  // A thread without the right to end a capture ends it nevertheless, and its graph is lost.
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thisThread())
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  else if (capture->isInvalid)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!allJoined(*capture))
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  close(capture);
  if (result == CUDA_SUCCESS)
    *graph = capture->graph;
  else if (!capture->isIntoGraph)
    GraphHandles::instance().graphs.remove(capture->graph->handle());
  return result;
}

CUresult captureWait(const StreamTarget& stream, const std::shared_ptr<Event>& event, bool external, CUevent handle,
                     bool* captured) {
  *captured = false;
  if (openCaptures == 0) return CUDA_SUCCESS;
  const Lock lock(graphMutex());
  CapturePoint& mine = stream.queue->capture;
  if (external) {
    if (!mine) return CUDA_SUCCESS;
    return captureWork(stream, EventWork{handle, event, false}, captured);
  }
  // An event recorded in a capture that has ended no longer marks a point.
  const std::shared_ptr<Capture> other = event->capture.capture;
  const bool isOpen = other && std::find(captures().begin(), captures().end(), other) != captures().end();
  if (!isOpen) {
    if (!mine) return CUDA_SUCCESS;
    *captured = true;
    if (!other && !event->point()) return CUDA_SUCCESS;  // never recorded, so there is nothing to wait for
    // Work outside of the capture cannot be waited for in the graph.
    mine.capture->isInvalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (mine && mine.capture != other) {
    mine.capture->isInvalid = other->isInvalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (other->isInvalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.queue->order == Queue::Order::legacy) {
    other->isInvalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  join(other, stream.queue);
  addEdges(mine.after, event->capture.after);
  *captured = true;
  return CUDA_SUCCESS;
}

CUresult captureRecord(const StreamTarget& stream, const std::shared_ptr<Event>& event, bool external, CUevent handle,
                       bool* captured) {
  *captured = false;
  const Lock lock(graphMutex());
  const CapturePoint& point = stream.queue->capture;
  if (!point) {
    event->capture = {};
    return CUDA_SUCCESS;
  }
  if (point.capture->isInvalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (external) return captureWork(stream, EventWork{handle, event, true}, captured);
  event->capture = point;
  *captured = true;
  return CUDA_SUCCESS;
}

void forgetQueue(const QueuePtr& queue) {
  const Lock lock(graphMutex());
  const std::shared_ptr<Capture> capture = queue->capture.capture;
  if (!capture) return;
  // Without its origin a capture can never be ended. Any other queue stays in it, because later work may depend on it.
  if (capture->origin != queue) return;
  close(capture);
  if (!capture->isIntoGraph) GraphHandles::instance().graphs.remove(capture->graph->handle());
}

}  // namespace millpond::softgpu
