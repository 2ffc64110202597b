// SPDX-License-Identifier: Apache-2.0
// Whole graphs, their dependencies, and their launches.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/unique_fd.h"
#include "client/call/call.h"
#include "client/calls/graphs/graph_call.h"
#include "client/session/callback_thread.h"
#include "client/session/client.h"

namespace millpond::client::api {
namespace {

/// Values of GraphList::what.
enum What : uint32_t { kNodes, kRoots, kEdges, kDependencies, kDependents };

struct Listed {
  std::vector<uint64_t> nodes;
  std::vector<uint64_t> others;
  std::vector<CUgraphEdgeData> edges;

  bool isPlain() const {
    return std::all_of(edges.begin(), edges.end(),
                       [](const CUgraphEdgeData& e) { return e.type == 0 && e.from_port == 0 && e.to_port == 0; });
  }
};

template <typename T>
void append(std::vector<T>& to, std::span<const std::byte> bytes) {
  const size_t before = to.size();
  to.resize(before + bytes.size() / sizeof(T));
  if (to.size() > before) std::memcpy(to.data() + before, bytes.data(), (to.size() - before) * sizeof(T));
}

/// All of a list, a page at a time.
CUresult list(Call& call, uint64_t object, What what, Listed& out) {
  for (;;) {
    cmd::GraphList wire{};
    wire.object = object;
    wire.what = what;
    wire.first = static_cast<uint32_t>(out.nodes.size());
    Reply<cmd::GraphListReply> reply;
    if (const CUresult r = reply.of(call, wire); r != CUDA_SUCCESS) return r;
    append(out.nodes, reply.tail(0));
    append(out.others, reply.tail(1));
    append(out.edges, reply.tail(2));
    if (out.nodes.size() >= reply.fixed().total || reply.tail(0).empty()) return CUDA_SUCCESS;
  }
}

/// Returns a list as the driver does: without `out` only its length, otherwise as much as there is room for, and null
/// for the rest.
template <typename T, typename U>
void fill(const std::vector<U>& all, T* out, size_t room) {
  static_assert(sizeof(T) == sizeof(U));
  for (size_t i = 0; i < room; ++i) {
    const U each = i < all.size() ? all[i] : U{};
    std::memcpy(&out[i], &each, sizeof(each));
  }
}

CUresult nodesOf(const char* name, CUgraph graph, What what, CUgraphNode* nodes, size_t* count) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, graph); r != CUDA_SUCCESS) return r;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  Listed all;
  if (const CUresult r = list(call, numberOf(graph), what, all); r != CUDA_SUCCESS) return r;
  if (nodes) fill(all.nodes, nodes, *count);
  *count = nodes ? std::min(*count, all.nodes.size()) : all.nodes.size();
  return CUDA_SUCCESS;
}

CUresult edgesOf(const char* name, CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                 size_t* count) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, graph); r != CUDA_SUCCESS) return r;
  if (!count || !from != !to) return CUDA_ERROR_INVALID_VALUE;
  Listed all;
  if (const CUresult r = list(call, numberOf(graph), kEdges, all); r != CUDA_SUCCESS) return r;
  if (from) {
    if (!data && !all.isPlain()) return CUDA_ERROR_LOSSY_QUERY;
    fill(all.nodes, from, *count);
    fill(all.others, to, *count);
    if (data) fill(all.edges, data, *count);
  }
  *count = from ? std::min(*count, all.nodes.size()) : all.nodes.size();
  return CUDA_SUCCESS;
}

CUresult neighboursOf(const char* name, CUgraphNode node, What what, CUgraphNode* nodes, CUgraphEdgeData* data,
                      size_t* count) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, node); r != CUDA_SUCCESS) return r;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  Listed all;
  if (const CUresult r = list(call, numberOf(node), what, all); r != CUDA_SUCCESS) return r;
  if (nodes) {
    if (!data && !all.isPlain()) return CUDA_ERROR_LOSSY_QUERY;
    fill(all.nodes, nodes, *count);
    if (data) fill(all.edges, data, *count);
  }
  *count = nodes ? std::min(*count, all.nodes.size()) : all.nodes.size();
  return CUDA_SUCCESS;
}

CUresult depend(const char* name, CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                const CUgraphEdgeData* data, size_t count, bool remove) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, graph); r != CUDA_SUCCESS) return r;
  if (count && (!from || !to)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; at += graph::kMaxDependencies) {
    const size_t n = std::min<size_t>(graph::kMaxDependencies, count - at);
    cmd::GraphDepend wire{};
    wire.graph = numberOf(graph);
    wire.remove = remove ? 1 : 0;
    wire.hasEdges = data ? 1 : 0;
    Session::Answer answer;
    if (const CUresult r =
            call.waitFor(wire, answer, std::as_bytes(std::span(from + at, n)), std::as_bytes(std::span(to + at, n)),
                         std::as_bytes(std::span(data ? data + at : nullptr, data ? n : 0)));
        r != CUDA_SUCCESS)
      return r;
  }
  return CUDA_SUCCESS;
}

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
  ExecInfo info{flags, reply.fixed().hostFunctions, reply.fixed().kept != 0, {}};
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
  ExecInfo fresh{known->flags, reply.fixed().hostFunctions, known->keepsMemory, {}};
  if (const CUresult r = readSources(call, wire.exec, reply.fixed().sourceCount, reply.tail(0), fresh.sources);
      r != CUDA_SUCCESS)
    return r;
  call.remote().graphs.setExec(numberOf(exec), std::move(fresh));
  return CUDA_SUCCESS;
}

/// Sends the current contents of this process's memory that the launch reads.
CUresult sendSources(Call& call, const ExecInfo& info, uint64_t stream) {
  if (info.sources.empty()) return CUDA_SUCCESS;
  // A pending function of the program may still write it.
  if (CallbackThread::busy(call.streamContext(stream))) {
    cmd::StreamSync sync{};
    sync.stream = stream;
    cmd::StreamSyncReply reply{};
    if (const CUresult r = call.wait(sync, reply); r != CUDA_SUCCESS) return r;
  }
  Landings& landings = call.remote().landings;
  for (const graph::Source& source : info.sources) {
    if (source.number == 0) continue;
    const Landings::Parts parts(landings, source.address, source.bytes);
    for (const Landings::Part& part : parts) {
      if (part.landing != 0) {
        // Another graph finds data that one graph writes for this process at the worker.
        if (part.source == Landings::Source::kGraph && part.isWhole) continue;
        if (const CUresult r = Landings::await(call, landings, part.landing); r != CUDA_SUCCESS) return r;
      }
      for (uint64_t at = part.address; at < part.address + part.bytes; at += wire::kChunkBytes) {
        const cmd::GraphSource wire{.source = source.number, .address = at};
        const uint64_t bytes = std::min<uint64_t>(wire::kChunkBytes, part.address + part.bytes - at);
        const std::span<const std::byte> piece(reinterpret_cast<const std::byte*>(at), bytes);
        if (const CUresult r = call.remote().mapped.reachNamed(call, at, piece); r != CUDA_SUCCESS) return r;
        if (const CUresult r = call.postData(wire, piece); r != CUDA_SUCCESS) return r;
      }
    }
  }
  return CUDA_SUCCESS;
}

/// The number of a launch's landing in this process's memory; 0 if it has none.
uint64_t beginLanding(Call& call, const ExecInfo& info) {
  std::vector<Landings::Range> ranges;
  for (const graph::Source& each : info.sources)
    if (each.number == 0) ranges.push_back({each.address, each.bytes, each.hasGaps == 0});
  if (ranges.empty()) return 0;
  return call.remote().landings.begin(Landings::Source::kGraph, ranges);
}

CUresult count(const char* name, CUuserObject object, uint64_t graph, unsigned number, uint32_t what, unsigned flags) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!graph::is(graph::Tag::kUserObject, reinterpret_cast<uint64_t>(object)) || number == 0)
    return CUDA_ERROR_INVALID_VALUE;
  cmd::UserObjectCount wire{};
  wire.object = reinterpret_cast<uint64_t>(object);
  wire.graph = graph;
  wire.count = number;
  wire.what = what;
  wire.flags = flags;
  Session::Answer answer;
  return call.waitFor(wire, answer);
}

CUresult memory(const char* name, CUdevice device, uint32_t what, CUgraphMem_attribute attribute, uint64_t* value) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::GraphMemory wire{};
  if (const CUresult r = call.device(device, wire.device); r != CUDA_SUCCESS) return r;
  wire.what = what;
  wire.attribute = static_cast<uint32_t>(attribute);
  wire.value = value ? *value : 0;
  cmd::GraphMemoryReply reply{};
  const CUresult result = call.wait(wire, reply);
  if (result == CUDA_SUCCESS && value) *value = reply.value;
  return result;
}

}  // namespace

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) noexcept {
  Call call("cuGraphCreate", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!phGraph || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphCreateReply reply{};
  const CUresult result = call.wait(cmd::GraphCreate{}, reply);
  if (result == CUDA_SUCCESS) *phGraph = reinterpret_cast<CUgraph>(reply.graph);
  return result;
}

CUresult cuGraphDestroy(CUgraph hGraph) noexcept {
  Call call("cuGraphDestroy", Needs::kNothing);
  if (const CUresult r = check(call, hGraph); r != CUDA_SUCCESS) return r;
  call.remote().graphs.dropGraph(numberOf(hGraph));
  cmd::GraphDestroy wire{};
  wire.graph = numberOf(hGraph);
  return call.post(wire);
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) noexcept {
  Call call("cuGraphClone", Needs::kNothing);
  if (const CUresult r = check(call, originalGraph); r != CUDA_SUCCESS) return r;
  if (!phGraphClone) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphClone wire{};
  wire.graph = numberOf(originalGraph);
  cmd::GraphCloneReply reply{};
  const CUresult result = call.wait(wire, reply);
  if (result == CUDA_SUCCESS) *phGraphClone = reinterpret_cast<CUgraph>(reply.clone);
  return result;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) noexcept {
  Call call("cuGraphNodeFindInClone", Needs::kNothing);
  if (const CUresult r = check(call, hOriginalNode); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check(call, hClonedGraph); r != CUDA_SUCCESS) return r;
  if (!phNode) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphFindInClone wire{};
  wire.node = numberOf(hOriginalNode);
  wire.clone = numberOf(hClonedGraph);
  cmd::GraphFindInCloneReply reply{};
  const CUresult result = call.wait(wire, reply);
  *phNode = result == CUDA_SUCCESS ? reinterpret_cast<CUgraphNode>(reply.found) : nullptr;
  return result;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) noexcept {
  return nodesOf("cuGraphGetNodes", hGraph, kNodes, nodes, numNodes);
}
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) noexcept {
  return nodesOf("cuGraphGetRootNodes", hGraph, kRoots, rootNodes, numRootNodes);
}
CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) noexcept {
  return edgesOf("cuGraphGetEdges", hGraph, from, to, nullptr, numEdges);
}
CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData,
                            size_t* numEdges) noexcept {
  return edgesOf("cuGraphGetEdges_v2", hGraph, from, to, edgeData, numEdges);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies, size_t* numDependencies) noexcept {
  return neighboursOf("cuGraphNodeGetDependencies", hNode, kDependencies, dependencies, nullptr, numDependencies);
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies, CUgraphEdgeData* edgeData,
                                       size_t* numDependencies) noexcept {
  return neighboursOf("cuGraphNodeGetDependencies_v2", hNode, kDependencies, dependencies, edgeData, numDependencies);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) noexcept {
  return neighboursOf("cuGraphNodeGetDependentNodes", hNode, kDependents, dependentNodes, nullptr, numDependentNodes);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes, CUgraphEdgeData* edgeData,
                                         size_t* numDependentNodes) noexcept {
  return neighboursOf("cuGraphNodeGetDependentNodes_v2", hNode, kDependents, dependentNodes, edgeData,
                      numDependentNodes);
}
CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) noexcept {
  return depend("cuGraphAddDependencies", hGraph, from, to, nullptr, numDependencies, false);
}
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) noexcept {
  return depend("cuGraphAddDependencies_v2", hGraph, from, to, edgeData, numDependencies, false);
}
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) noexcept {
  return depend("cuGraphRemoveDependencies", hGraph, from, to, nullptr, numDependencies, true);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edgeData, size_t numDependencies) noexcept {
  return depend("cuGraphRemoveDependencies_v2", hGraph, from, to, edgeData, numDependencies, true);
}

// Executable graphs

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) noexcept {
  Call call("cuGraphInstantiateWithFlags", Needs::kCurrent);
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
  if (const CUresult r = call.remote().mapped.reachWritten(call, wire.stream); r != CUDA_SUCCESS) return r;
  const uint16_t home = call.streamContext(wire.stream);
  if (info->hostFunctions)
    if (const CUresult r = CallbackThread::expect(call.session(), home, info->hostFunctions); r != CUDA_SUCCESS)
      return r;
  if (info->keepsMemory) call.waitForResult();
  wire.landing = beginLanding(call, *info);
  wire.landed = wire.landing ? call.remote().landings.over() : 0;
  const CUresult r = call.post(wire);
  if (r == static_cast<CUresult>(kSessionLost)) call.remote().landings.end(wire.landing);
  return r;
}

CUresult cuGraphUpload(Flavour flavour, CUgraphExec hGraphExec, CUstream hStream) noexcept {
  Call call("cuGraphUpload", Needs::kAny);
  cmd::GraphUpload wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  wire.exec = numberOf(hGraphExec);
  if (!call.remote().graphs.exec(wire.exec)) return CUDA_ERROR_INVALID_VALUE;
  return call.post(wire);
}

// User objects: their destructors run on the thread that runs callbacks

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags) noexcept {
  Call call("cuUserObjectCreate", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!object_out || !destroy || initialRefcount == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  cmd::UserObjectCreate wire{};
  wire.data = reinterpret_cast<uint64_t>(ptr);
  wire.destroy = reinterpret_cast<uint64_t>(destroy);
  wire.references = initialRefcount;
  wire.flags = flags;
  cmd::UserObjectCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  call.remote().functions.give(GivenFunctions::Shape::kOfData, wire.destroy, wire.data, GivenFunctions::Uses::kOne);
  if (const CUresult r = CallbackThread::expect(call.session(), call.context(), 1); r != CUDA_SUCCESS) return r;
  *object_out = reinterpret_cast<CUuserObject>(reply.object);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int number) noexcept {
  return count("cuUserObjectRetain", object, 0, number, 0, 0);
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned int number) noexcept {
  return count("cuUserObjectRelease", object, 0, number, 1, 0);
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int number, unsigned int flags) noexcept {
  return count("cuGraphRetainUserObject", object, numberOf(graph), number, 2, flags);
}
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int number) noexcept {
  return count("cuGraphReleaseUserObject", object, numberOf(graph), number, 3, 0);
}

// The rest

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) noexcept {
  Call call("cuGraphDebugDotPrint", Needs::kNothing);
  if (const CUresult r = check(call, hGraph); r != CUDA_SUCCESS) return r;
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> text;
  for (;;) {
    cmd::GraphDot wire{};
    wire.graph = numberOf(hGraph);
    wire.flags = flags;
    wire.offset = static_cast<uint32_t>(text.size());
    Reply<cmd::GraphDotReply> reply;
    if (const CUresult r = reply.of(call, wire); r != CUDA_SUCCESS) return r;
    append(text, reply.tail(0));
    if (text.size() >= reply.fixed().total || reply.tail(0).empty()) break;
  }
  // On the program's host, not on the GPU's.
  const UniqueFd file(::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(file.get(), text.data() + at, text.size() - at);
    if (n <= 0) return CUDA_ERROR_OPERATING_SYSTEM;
    at += static_cast<size_t>(n);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph, CUcontext ctx,
                                        unsigned int defaultLaunchValue, unsigned int flags) noexcept {
  Call call("cuGraphConditionalHandleCreate", Needs::kCurrent);
  if (const CUresult r = check(call, hGraph); r != CUDA_SUCCESS) return r;
  if (const CUresult r = useContext(call, ctx); r != CUDA_SUCCESS) return r;
  if (!pHandle_out) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphConditional wire{};
  wire.graph = numberOf(hGraph);
  wire.initial = defaultLaunchValue;
  wire.flags = flags;
  cmd::GraphConditionalReply reply{};
  const CUresult result = call.wait(wire, reply);
  if (result == CUDA_SUCCESS) *pHandle_out = reply.handle;
  return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) noexcept {
  return memory("cuDeviceGraphMemTrim", device, 2, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, nullptr);
}
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) noexcept {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return memory("cuDeviceGetGraphMemAttribute", device, 0, attr, static_cast<uint64_t*>(value));
}
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) noexcept {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return memory("cuDeviceSetGraphMemAttribute", device, 1, attr, static_cast<uint64_t*>(value));
}

}  // namespace millpond::client::api
