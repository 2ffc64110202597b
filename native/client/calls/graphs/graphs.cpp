// SPDX-License-Identifier: Apache-2.0
// Whole graphs: their creation and end, their nodes and dependencies, their pictures and memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/unique_fd.h"
#include "client/call/call.h"
#include "client/calls/graphs/graph_call.h"

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

/// All of a list, fetched a page at a time.
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

/// Returns a list as the driver does: without `out` only its length; otherwise as many elements as there is room for,
/// and null for the rest.
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
  cmd::GraphDestroy wire{};
  wire.graph = numberOf(hGraph);
  // The graph of a node, or of a capture, is refused by this call and not by a later one.
  call.waitForResult();
  if (const CUresult r = call.post(wire); r != CUDA_SUCCESS) return r;
  call.remote().graphs.dropGraph(wire.graph);
  return CUDA_SUCCESS;
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
  // Only the high-water marks can be reset. The value passed for any other attribute is never read.
  uint64_t unread = 0;
  const bool isSettable = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  return memory("cuDeviceSetGraphMemAttribute", device, 1, attr, isSettable ? static_cast<uint64_t*>(value) : &unread);
}

}  // namespace millpond::client::api
