// SPDX-License-Identifier: Apache-2.0
// Stream capture. While the program has no open capture, queries about it are answered immediately.
#include <algorithm>
#include <array>
#include <cstring>

#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/capture_state.h"
#include "cuda/graph_node.h"

namespace millpond::client::api {
namespace {

bool isMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

template <typename T>
std::span<const std::byte> bytes(const T* first, size_t count) {
  return std::as_bytes(std::span(first, first ? count : 0));
}

struct Into {
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
};

CUresult begin(const char* name, Flavour flavour, CUstream hStream, CUstreamCaptureMode mode, const Into& into) {
  Call call(name, Needs::kAny);
  cmd::CaptureBegin wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  if (!isMode(mode) || (into.count && !into.nodes) || into.count > graph::kMaxDependencies)
    return CUDA_ERROR_INVALID_VALUE;
  if (wire.stream == 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the legacy stream
  wire.graph = reinterpret_cast<uint64_t>(into.graph);
  wire.hasEdges = into.edges ? 1 : 0;
  Session::Answer answer;
  if (const CUresult r = call.waitFor(wire, answer, bytes(into.nodes, into.count), bytes(into.edges, into.count));
      r != CUDA_SUCCESS)
    return r;
  const HandleTable::Slot* slot = call.remote().handles.find(wire.stream);
  const bool isBlocking = !slot || !(slot->traits.flags & CU_STREAM_NON_BLOCKING);
  CaptureState::begun(wire.stream, mode, call.thread(), call.streamContext(wire.stream), isBlocking,
                      into.graph != nullptr);
  return CUDA_SUCCESS;
}

/// The result of cuStreamGetCaptureInfo: valid until the thread's next query.
struct Answered {
  std::vector<uint64_t> nodes;
  std::vector<CUgraphEdgeData> edges;
};

CUresult info(const char* name, Flavour flavour, CUstream hStream, CUstreamCaptureStatus* status, cuuint64_t* id,
              CUgraph* graph, const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  if (!CaptureState::anyOpen()) {
    if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
    if (isDefaultStream(hStream) && !CurrentContext::get()) return CUDA_ERROR_INVALID_CONTEXT;
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  Call call(name, Needs::kAny);
  cmd::CaptureInfo wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> body;
  Session::Answer answer;
  answer.whole = &body;
  if (const CUresult r = call.waitFor(wire, answer); r != CUDA_SUCCESS) return r;
  cmd::Decoded<cmd::CaptureInfoReply> reply;
  if (!cmd::decode(std::span<const std::byte>(body), reply)) return CUDA_ERROR_UNKNOWN;
  *status = static_cast<CUstreamCaptureStatus>(reply.fixed.status);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  static thread_local Answered* answered = nullptr;
  if (!answered) answered = new Answered();  // never freed: the program keeps the returned pointers
  answered->nodes.resize(reply.tail[0].size() / sizeof(uint64_t));
  if (!reply.tail[0].empty()) std::memcpy(answered->nodes.data(), reply.tail[0].data(), reply.tail[0].size());
  answered->edges.resize(reply.tail[1].size() / sizeof(CUgraphEdgeData));
  if (!reply.tail[1].empty()) std::memcpy(answered->edges.data(), reply.tail[1].data(), reply.tail[1].size());
  // Without room for the edge data, that data would be lost.
  const bool carriesData = std::any_of(answered->edges.begin(), answered->edges.end(), [](const CUgraphEdgeData& edge) {
    constexpr CUgraphEdgeData kNone{};
    return std::memcmp(&edge, &kNone, sizeof edge) != 0;
  });
  if (carriesData && nodes && !edges) return CUDA_ERROR_LOSSY_QUERY;
  if (id) *id = reply.fixed.id;
  if (graph) *graph = reinterpret_cast<CUgraph>(reply.fixed.graph);
  if (nodes) *nodes = reinterpret_cast<const CUgraphNode*>(answered->nodes.data());
  if (edges) *edges = answered->edges.empty() ? nullptr : answered->edges.data();
  if (count) *count = answered->nodes.size();
  return CUDA_SUCCESS;
}

CUresult depend(const char* name, Flavour flavour, CUstream hStream, const CUgraphNode* nodes,
                const CUgraphEdgeData* edges, size_t count, unsigned flags) {
  Call call(name, Needs::kAny);
  cmd::CaptureDepend wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  if ((count && !nodes) || count > graph::kMaxDependencies) return CUDA_ERROR_INVALID_VALUE;
  wire.flags = flags;
  wire.hasEdges = edges ? 1 : 0;
  Session::Answer answer;
  return call.waitFor(wire, answer, bytes(nodes, count), bytes(edges, count));
}

}  // namespace

CUresult cuStreamBeginCapture(Flavour flavour, CUstream hStream) noexcept {
  return begin("cuStreamBeginCapture", flavour, hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, {});
}

CUresult cuStreamBeginCapture_v2(Flavour flavour, CUstream hStream, CUstreamCaptureMode mode) noexcept {
  return begin("cuStreamBeginCapture_v2", flavour, hStream, mode, {});
}

CUresult cuStreamBeginCaptureToGraph(Flavour flavour, CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) noexcept {
  if (!graph::is(graph::Tag::kGraph, reinterpret_cast<uint64_t>(hGraph))) return CUDA_ERROR_INVALID_VALUE;
  return begin("cuStreamBeginCaptureToGraph", flavour, hStream, mode,
               {hGraph, dependencies, dependencyData, numDependencies});
}

CUresult cuStreamEndCapture(Flavour flavour, CUstream hStream, CUgraph* phGraph) noexcept {
  Call call("cuStreamEndCapture", Needs::kAny);
  cmd::CaptureEnd wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  // A program that captures into a graph already has its handle.
  if (!phGraph && !CaptureState::isIntoGraph(wire.stream)) return CUDA_ERROR_INVALID_VALUE;
  if (phGraph) *phGraph = nullptr;
  // A thread that may not end the capture still does, and its graph is lost.
  const CUresult right = CaptureState::mayEnd(wire.stream, call.thread());
  if (right != CUDA_SUCCESS) CaptureState::lose(wire.stream, call.session(), call.thread());
  cmd::CaptureEndReply reply{};
  CUresult result = call.wait(wire, reply);
  if (right != CUDA_SUCCESS && result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) result = right;
  // These calls do not affect the capture; an earlier failure was returned in place of this call.
  if (result != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED && result != CUDA_ERROR_ILLEGAL_STATE)
    CaptureState::ended(wire.stream);
  if (result == CUDA_SUCCESS && phGraph) *phGraph = reinterpret_cast<CUgraph>(reply.graph);
  return result;
}

CUresult cuStreamIsCapturing(Flavour flavour, CUstream hStream, CUstreamCaptureStatus* captureStatus) noexcept {
  return info("cuStreamIsCapturing", flavour, hStream, captureStatus, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(Flavour flavour, CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) noexcept {
  return info("cuStreamGetCaptureInfo", flavour, hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr,
              nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(Flavour flavour, CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) noexcept {
  return info("cuStreamGetCaptureInfo_v2", flavour, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
              nullptr, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(Flavour flavour, CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) noexcept {
  return info("cuStreamGetCaptureInfo_v3", flavour, hStream, captureStatus_out, id_out, graph_out, dependencies_out,
              edgeData_out, numDependencies_out);
}

CUresult cuStreamUpdateCaptureDependencies(Flavour flavour, CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) noexcept {
  return depend("cuStreamUpdateCaptureDependencies", flavour, hStream, dependencies, nullptr, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(Flavour flavour, CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                              unsigned int flags) noexcept {
  return depend("cuStreamUpdateCaptureDependencies_v2", flavour, hStream, dependencies, dependencyData, numDependencies,
                flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!mode || !isMode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  *mode = CaptureState::exchangeMode(*mode);
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
