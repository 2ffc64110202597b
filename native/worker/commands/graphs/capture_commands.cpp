// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/capture_commands.h"

#include <memory>
#include <span>
#include <vector>

namespace millpond::worker {

uint64_t CaptureCommands::lastCaptured(const Stream& s) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  if (driver_.cuStreamGetCaptureInfo_v3(s.handle, &status, &id, &graph, &nodes, &edges, &count) ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1)
    return 0;
  const uint64_t number = graphs_.numberOf(graph);
  return number ? graphs_.adopt(number, nodes[0]) : 0;
}

CUresult CaptureCommands::onCaptureBegin(const cmd::Decoded<cmd::CaptureBegin>& command) {
  const auto& begin = command.fixed;
  Stream s;
  if (!stream(begin.stream, s)) return violation("unknown stream");
  if (!driver_.cuStreamBeginCapture_v2 || !driver_.cuStreamGetCaptureInfo_v3) return CUDA_ERROR_NOT_SUPPORTED;
  if (captures_.empty()) nodeCount_.dropCaptured();
  CUresult rc;
  if (begin.graph) {
    const GraphTable::Graph* graph = graphs_.graph(begin.graph);
    std::vector<CUgraphNode> nodes;
    std::vector<CUgraphEdgeData> edges;
    if (!graph || !graphs_.dependencies(begin.graph, command.tail[0], command.tail[1], begin.hasEdges, nodes, edges))
      return CUDA_ERROR_INVALID_VALUE;
    rc = driver_.cuStreamBeginCaptureToGraph(s.handle, graph->handle, nodes.data(),
                                             edges.empty() ? nullptr : edges.data(), nodes.size(),
                                             CU_STREAM_CAPTURE_MODE_RELAXED);
  } else {
    rc = driver_.cuStreamBeginCapture_v2(s.handle, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  if (rc) return rc;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  rc = driver_.cuStreamGetCaptureInfo_v3(s.handle, &status, &id, &graph, nullptr, nullptr, nullptr);
  if (rc) return rc;
  captures_.begin(begin.stream, {graphs_.adopt(graph), begin.graph != 0});
  return CUDA_SUCCESS;
}

CUresult CaptureCommands::onCaptureEnd(const cmd::Decoded<cmd::CaptureEnd>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  if (!driver_.cuStreamEndCapture) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraph graph = nullptr;
  const CUresult rc = driver_.cuStreamEndCapture(s.handle, &graph);
  const auto* capture = captures_.find(command.fixed.stream);
  // These do not affect the capture.
  const bool goesOn = rc == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED || rc == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD ||
                      rc == CUDA_ERROR_ILLEGAL_STATE;
  if (capture && !goesOn) {
    if (rc && !capture->intoGraph) graphs_.dropGraph(capture->graph);
    captures_.end(command.fixed.stream);
  }
  if (rc) return rc;
  const uint64_t number = graph ? graphs_.adopt(graph) : 0;
  if (number) nodeCount_.keepCaptured(number);
  reply(cmd::CaptureEndReply{number});
  return CUDA_SUCCESS;
}

CUresult CaptureCommands::onCaptureInfo(const cmd::Decoded<cmd::CaptureInfo>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  if (!driver_.cuStreamGetCaptureInfo_v3) return CUDA_ERROR_NOT_SUPPORTED;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  if (CUresult rc = driver_.cuStreamGetCaptureInfo_v3(s.handle, &status, &id, &graph, &nodes, &edges, &count))
    return rc;
  cmd::CaptureInfoReply answer{};
  answer.status = static_cast<uint32_t>(status);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    reply(answer, std::span<const std::byte>{}, std::span<const std::byte>{});
    return CUDA_SUCCESS;
  }
  if (count > graph::kMaxDependencies) return CUDA_ERROR_NOT_SUPPORTED;
  answer.id = id;
  answer.graph = graphs_.adopt(graph);
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back(graphs_.adopt(answer.graph, nodes[i]));
  const std::span<const CUgraphEdgeData> data(edges, edges ? count : 0);
  reply(answer, std::as_bytes(std::span<const uint64_t>(numbers)), std::as_bytes(data));
  return CUDA_SUCCESS;
}

CUresult CaptureCommands::onCaptureDepend(const cmd::Decoded<cmd::CaptureDepend>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  if (!driver_.cuStreamUpdateCaptureDependencies_v2) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
  if (!graphs_.dependencies(0, command.tail[0], command.tail[1], command.fixed.hasEdges, nodes, edges))
    return CUDA_ERROR_INVALID_VALUE;
  return driver_.cuStreamUpdateCaptureDependencies_v2(s.handle, nodes.data(), edges.empty() ? nullptr : edges.data(),
                                                      nodes.size(), command.fixed.flags);
}

CUresult CaptureCommands::onCaptureInvalidate(const cmd::Decoded<cmd::CaptureInvalidate>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  // A query of a captured stream ends its capture.
  if (captures_.status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE) driver_.cuStreamQuery(s.handle);
  return CUDA_SUCCESS;
}

CUresult CaptureCommands::onCaptureCopy(const cmd::Decoded<cmd::CaptureCopy>& command) {
  const auto& in = command.fixed;
  Stream s;
  if (!stream(in.stream, s)) return violation("unknown stream");
  if (in.direction != 1 && in.direction != 2) return violation("a copy of unknown direction");
  switch (captures_.status(s)) {
    case CU_STREAM_CAPTURE_STATUS_ACTIVE: break;
    case CU_STREAM_CAPTURE_STATUS_INVALIDATED: return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    default: return CUDA_ERROR_ILLEGAL_STATE;  // another thread has ended the capture
  }
  const bool toDevice = in.direction == 1;
  SessionRange device;
  if (CUresult rc = addresses_.reach(in.deviceAddress, in.bytes, device)) return rc;
  CUDA_MEMCPY3D original{};
  original.srcMemoryType = toDevice ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  original.dstMemoryType = toDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  (toDevice ? original.dstDevice : original.srcDevice) = device.device();
  if (toDevice)
    original.srcHost = reinterpret_cast<const void*>(in.hostAddress);
  else
    original.dstHost = reinterpret_cast<void*>(in.hostAddress);
  original.srcPitch = original.dstPitch = original.WidthInBytes = in.bytes;
  original.srcHeight = original.dstHeight = original.Height = original.Depth = 1;
  const Box box{.address = in.hostAddress, .pitch = in.bytes, .rows = 1, .width = in.bytes};
  std::shared_ptr<GraphStage> stage;
  if (CUresult rc = stages_.make(box, toDevice, original, stage)) return rc;
  const CUresult rc = toDevice ? driver_.cuMemcpyHtoDAsync_v2(device.device(), stage->memory, in.bytes, s.handle)
                               : driver_.cuMemcpyDtoHAsync_v2(stage->memory, device.device(), in.bytes, s.handle);
  if (rc) return rc;
  const uint64_t node = lastCaptured(s);
  if (!node) return CUDA_ERROR_UNKNOWN;
  graphs_.node(node)->stage = stage;
  graphs_.markSpecial(node);
  return CUDA_SUCCESS;
}

CUresult CaptureCommands::addHostFunction(const Stream& s, const Callback& callback) {
  const HostCall* call = calls_.of(callback);
  if (!call) return CUDA_ERROR_OUT_OF_MEMORY;
  if (CUresult rc = driver_.cuLaunchHostFunc(s.handle, &HostCall::runNode, const_cast<HostCall*>(call))) return rc;
  const uint64_t node = lastCaptured(s);
  if (!node) return CUDA_ERROR_UNKNOWN;
  graphs_.node(node)->call = call;
  graphs_.markSpecial(node);
  return CUDA_SUCCESS;
}

CUresult CaptureCommands::addNode(const Stream& s, CUgraphNodeParams& params, uint64_t& node) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  if (CUresult rc = driver_.cuStreamGetCaptureInfo_v3(s.handle, &status, &id, &graph, &after, &edges, &count))
    return rc;
  const std::vector<CUgraphNode> nodes(after, after + count);
  const std::vector<CUgraphEdgeData> data(edges, edges ? edges + count : edges);
  CUgraphNode made = nullptr;
  if (CUresult rc =
          driver_.cuGraphAddNode_v2(&made, graph, nodes.data(), data.empty() ? nullptr : data.data(), count, &params))
    return rc;
  node = graphs_.adopt(graphs_.adopt(graph), made);
  return driver_.cuStreamUpdateCaptureDependencies_v2(s.handle, &made, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

CUresult CaptureCommands::addAllocation(const Stream& s, size_t ordinal, uint64_t bytes) {
  graph::NodeRecord record{};
  record.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  CUmemPoolProps pool{};
  pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  pool.location.id = static_cast<int>(ordinal);
  record.allocation.pool = pool;
  record.allocation.bytes = bytes;
  NodeParams params;
  if (CUresult rc = reader_.read(std::as_bytes(std::span(&record, 1)), params)) return rc;
  uint64_t node = 0;
  if (CUresult rc = addNode(s, params.params, node)) return rc;
  reader_.adoptAllocation(node, params);
  reply(cmd::PoolAllocReply{params.params.alloc.dptr, 1});
  return CUDA_SUCCESS;
}

CUresult CaptureCommands::addFree(const Stream& s, CUdeviceptr address) {
  if (!graphMemory_.contains(address)) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  params.free.dptr = address;
  uint64_t node = 0;
  const CUresult rc = addNode(s, params, node);
  if (!rc) graphMemory_.willFree(address);
  return rc;
}

void CaptureCommands::endStream(uint64_t wire) {
  const auto* capture = captures_.find(wire);
  if (!capture) return;
  if (!capture->intoGraph) graphs_.dropGraph(capture->graph);
  captures_.end(wire);
}

}  // namespace millpond::worker
