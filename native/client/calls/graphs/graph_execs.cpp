// SPDX-License-Identifier: Apache-2.0
// Executable graphs: instantiation, updates and launches.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "client/call/call.h"
#include "client/calls/graphs/graph_call.h"
#include "client/calls/memory/copies.h"
#include "client/process/client.h"
#include "client/session/callback_thread.h"

namespace millpond::client::api {
namespace {

struct Instantiated {
  CUresult status = CUDA_SUCCESS;
  CUgraphNode errorNode = nullptr;
  CUgraphInstantiateResult result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
};

CUresult instantiate(Call& call, CUgraphExec* exec, CUgraph graph, uint64_t flags, const uint64_t* uploadStream,
                     Instantiated& out) {
  if (const CUresult r = check(call, graph); r != CUDA_SUCCESS) return r;
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  *exec = nullptr;
  cmd::GraphInstantiate wire{};
  wire.graph = numberOf(graph);
  wire.flags = flags;
  wire.hasUpload = uploadStream ? 1 : 0;
  wire.stream = uploadStream ? *uploadStream : 0;
  Reply<cmd::GraphInstantiateReply> reply;
  if (const CUresult r = reply.of(call, wire); r != CUDA_SUCCESS) return r;
  out.status = static_cast<CUresult>(reply.fixed().status);
  out.errorNode = reinterpret_cast<CUgraphNode>(reply.fixed().errorNode);
  out.result = static_cast<CUgraphInstantiateResult>(reply.fixed().result);
  if (out.status != CUDA_SUCCESS) return out.status;
  ExecInfo info{flags, reply.fixed().hostFunctions, reply.fixed().hostCopies, reply.fixed().kept != 0, {}};
  if (const CUresult r = readSources(call, reply.fixed().exec, reply.fixed().sourceCount, reply.tail(0), info.sources);
      r != CUDA_SUCCESS)
    return r;
  call.remote().graphs.setExec(reply.fixed().exec, std::move(info));
  *exec = reinterpret_cast<CUgraphExec>(reply.fixed().exec);
  return CUDA_SUCCESS;
}

CUresult update(const char* name, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, graph); r != CUDA_SUCCESS) return r;
  const auto known = call.remote().graphs.exec(numberOf(exec));
  if (!known || !info) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphExecUpdate wire{};
  wire.exec = numberOf(exec);
  wire.graph = numberOf(graph);
  Reply<cmd::GraphExecUpdateReply> reply;
  if (const CUresult r = reply.of(call, wire); r != CUDA_SUCCESS) return r;
  info->result = static_cast<CUgraphExecUpdateResult>(reply.fixed().result);
  info->errorNode = reinterpret_cast<CUgraphNode>(reply.fixed().errorNode);
  info->errorFromNode = reinterpret_cast<CUgraphNode>(reply.fixed().errorFromNode);
  if (reply.fixed().status != CUDA_SUCCESS) return static_cast<CUresult>(reply.fixed().status);
  ExecInfo fresh{known->flags, reply.fixed().hostFunctions, reply.fixed().hostCopies, known->keepsMemory, {}};
  if (const CUresult r = readSources(call, wire.exec, reply.fixed().sourceCount, reply.tail(0), fresh.sources);
      r != CUDA_SUCCESS)
    return r;
  call.remote().graphs.setExec(numberOf(exec), std::move(fresh));
  return CUDA_SUCCESS;
}

/// Whether the worker has the bytes because kernels use that memory: then launches transfer nothing in either
/// direction.
bool isMirrored(Call& call, const graph::Source& source) {
  if (!Mirror::exists()) return false;
  const auto run = call.remote().memory.find(source.address, source.bytes);
  return run && run->kind == MemoryKind::kMirrored;
}

/// Data that one graph writes for this process is available to another graph at the worker.
bool isAtWorker(const Landings::Part& part) { return part.source == Landings::Source::kGraph && part.isWhole; }

/// Whether streams may wait for the program, directly or because the program must act first.
bool mayBeHeldUp(const Call& call) { return HostFunctions::anyPending() || call.remote().mirror.mayStreamWait(); }

/// Lets launches read pinned memory at the worker when the stream reaches them, if it must not be read now and the call
/// must not wait until it may be.
CUresult mirrorLate(Call& call, const graph::Source& source, bool isLate) {
  const auto run = call.remote().memory.find(source.address, source.bytes);
  if (!run || run->kind != MemoryKind::kPinnedLocal) return CUDA_SUCCESS;
  if (!isLate && call.remote().landings.any() && mayBeHeldUp(call)) {
    const Landings::Parts parts(call.remote().landings, source.address, source.bytes);
    isLate = std::any_of(parts.begin(), parts.end(),
                         [](const Landings::Part& part) { return part.landing != 0 && !isAtWorker(part); });
  }
  if (!isLate) return CUDA_SUCCESS;
  const CUresult r = call.remote().mapped.reach(CallSink(call), *run);
  return r == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : r;
}

/// Sends the current contents of this process's memory that the launch reads.
CUresult sendSources(Call& call, const ExecInfo& info, uint64_t stream) {
  const auto isSent = [&](const graph::Source& each) { return each.number != 0 && !isMirrored(call, each); };
  if (std::none_of(info.sources.begin(), info.sources.end(), isSent)) return CUDA_SUCCESS;
  // Pending functions of the program may still write it, and may wait for this thread.
  bool isWritten = CallbackThread::busy(call.streamContext(stream));
  if (isWritten) {
    bool isDone = false;
    if (const CUresult r = awaitBriefly(call, stream, isDone); r != CUDA_SUCCESS) return r;
    isWritten = !isDone;
  }
  const bool isLate = isWritten || call.remote().mirror.mayStreamWait();
  Landings& landings = call.remote().landings;
  for (const graph::Source& source : info.sources) {
    if (!isSent(source)) continue;
    if (const CUresult r = mirrorLate(call, source, isLate); r != CUDA_SUCCESS) return r;
    if (isMirrored(call, source)) continue;
    // Memory that the worker cannot map at its address is sent again after each function.
    if (isWritten) call.remote().graphs.addLate(source);
    const Landings::Parts parts(landings, source.address, source.bytes);
    for (const Landings::Part& part : parts) {
      if (part.landing != 0) {
        if (isAtWorker(part)) continue;
        if (const CUresult r = landings.await(CallSink(call), part.landing); r != CUDA_SUCCESS) return r;
      }
      for (uint64_t at = part.address; at < part.address + part.bytes; at += wire::kChunkBytes) {
        const cmd::GraphSource wire{.source = source.number, .address = at};
        const uint64_t bytes = std::min<uint64_t>(wire::kChunkBytes, part.address + part.bytes - at);
        const std::span<const std::byte> piece(reinterpret_cast<const std::byte*>(at), bytes);
        if (const CUresult r = call.remote().mapped.reachNamed(CallSink(call), at, piece); r != CUDA_SUCCESS) return r;
        if (const CUresult r = call.postData(wire, piece); r != CUDA_SUCCESS) return r;
      }
    }
  }
  return CUDA_SUCCESS;
}

/// The number of the landing by which a launch writes this process's memory; 0: it writes none.
uint64_t beginLanding(Call& call, const ExecInfo& info) {
  std::vector<Landings::Range> ranges;
  for (const graph::Source& each : info.sources)
    if (each.number == 0 && !isMirrored(call, each)) ranges.push_back({each.address, each.bytes, each.hasGaps == 0});
  if (ranges.empty()) return 0;
  return call.remote().landings.begin(Landings::Source::kGraph, ranges);
}

/// Whether a card's driver itself performs copies of the launch: those to pageable memory, and those from host memory to
/// host memory. Then the launch returns after them, and programs read the bytes without waiting for the stream.
bool endsAfterCopies(Call& call, const ExecInfo& info) {
  return info.hostCopies != 0 || std::any_of(info.sources.begin(), info.sources.end(), [&](const graph::Source& each) {
           return each.number == 0 && !call.remote().memory.find(each.address, each.bytes);
         });
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) noexcept {
  Call call("cuGraphInstantiateWithFlags", Needs::kCurrent);
  // An upload needs a stream, which only cuGraphInstantiateWithParams has.
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) return CUDA_ERROR_INVALID_VALUE;
  Instantiated out;
  return instantiate(call, phGraphExec, hGraph, flags, nullptr, out);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                               size_t bufferSize) noexcept {
  Call call("cuGraphInstantiate_v2", Needs::kCurrent);
  Instantiated out;
  const CUresult result = instantiate(call, phGraphExec, hGraph, 0, nullptr, out);
  if (phErrorNode) *phErrorNode = out.errorNode;
  if (logBuffer && bufferSize) *logBuffer = 0;
  return result;
}

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                            size_t bufferSize) noexcept {
  return api::cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithParams(Flavour flavour, CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) noexcept {
  Call call("cuGraphInstantiateWithParams", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!instantiateParams) return CUDA_ERROR_INVALID_VALUE;
  uint64_t upload = 0;
  const bool uploads = instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  if (uploads)
    if (const CUresult r = call.stream(instantiateParams->hUploadStream, flavour, upload); r != CUDA_SUCCESS) return r;
  Instantiated out;
  const CUresult result =
      instantiate(call, phGraphExec, hGraph, instantiateParams->flags, uploads ? &upload : nullptr, out);
  instantiateParams->hErrNode_out = out.errorNode;
  instantiateParams->result_out = out.result;
  return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) noexcept {
  Call call("cuGraphExecGetFlags", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto info = call.remote().graphs.exec(numberOf(hGraphExec));
  if (!info || !flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = info->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) noexcept {
  Call call("cuGraphExecDestroy", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!call.remote().graphs.dropExec(numberOf(hGraphExec))) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphExecDestroy wire{};
  wire.exec = numberOf(hGraphExec);
  return call.post(wire);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) noexcept {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = update("cuGraphExecUpdate", hGraphExec, hGraph, &info);
  if (hErrorNode_out) *hErrorNode_out = info.errorNode;
  if (updateResult_out) *updateResult_out = info.result;
  return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) noexcept {
  return update("cuGraphExecUpdate_v2", hGraphExec, hGraph, resultInfo);
}

CUresult cuGraphLaunch(Flavour flavour, CUgraphExec hGraphExec, CUstream hStream) noexcept {
  Call call("cuGraphLaunch", Needs::kAny);
  cmd::GraphLaunch wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  wire.exec = numberOf(hGraphExec);
  const auto info = call.remote().graphs.exec(wire.exec);
  if (!info) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = sendSources(call, *info, wire.stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = call.remote().mapped.reachWritten(CallSink(call), wire.stream); r != CUDA_SUCCESS) return r;
  bool isCaptured = false;
  const bool waits = endsAfterCopies(call, *info);
  if (waits)
    if (const CUresult r = call.isCaptured(wire.stream, isCaptured); r != CUDA_SUCCESS) return r;
  const uint16_t home = call.streamContext(wire.stream);
  if (info->hostFunctions)
    if (const CUresult r = CallbackThread::expect(call.session(), home, info->hostFunctions); r != CUDA_SUCCESS)
      return r;
  if (info->keepsMemory) call.waitForResult();
  wire.landing = beginLanding(call, *info);
  wire.landed = wire.landing ? call.remote().landings.over() : 0;
  const CUresult r = call.post(wire);
  if (wire.landing) call.remote().landings.markSent(wire.landing);
  if (r == static_cast<CUresult>(kSessionLost)) call.remote().landings.end(wire.landing);
  return r == CUDA_SUCCESS && waits && !isCaptured ? awaitStream(call, wire.stream) : r;
}

CUresult cuGraphUpload(Flavour flavour, CUgraphExec hGraphExec, CUstream hStream) noexcept {
  Call call("cuGraphUpload", Needs::kAny);
  cmd::GraphUpload wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  wire.exec = numberOf(hGraphExec);
  if (!call.remote().graphs.exec(wire.exec)) return CUDA_ERROR_INVALID_VALUE;
  return call.post(wire);
}

}  // namespace millpond::client::api
