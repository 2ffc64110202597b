// SPDX-License-Identifier: Apache-2.0
// Graph nodes: converts their parameters for the worker and back.
#include <cstring>

#include "client/addresses/own_address.h"
#include "client/calls/graphs/graph_call.h"
#include "client/calls/graphs/node_params.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

constexpr size_t kMaxFollowing = size_t{512} << 10;

/// Stores the returned values of one kind of node in `params`.
CUresult add(const char* name, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
             const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* params) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, graph); r != CUDA_SUCCESS) return r;
  if (!out || !params || (count && !dependencies) || count > graph::kMaxDependencies) return CUDA_ERROR_INVALID_VALUE;
  PackedNode packed;
  if (const CUresult r = pack(call, *params, packed); r != CUDA_SUCCESS) return r;
  if (packed.rest.size() > kMaxFollowing) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphAddNode wire{};
  wire.graph = numberOf(graph);
  wire.hasEdges = edges ? 1 : 0;
  const std::vector<std::byte> bytes = packed.bytes();
  Reply<cmd::GraphAddNodeReply> reply;
  if (const CUresult r =
          reply.of(call, wire, std::as_bytes(std::span(dependencies, count)),
                   std::as_bytes(std::span(edges, edges ? count : 0)), std::span<const std::byte>(bytes));
      r != CUDA_SUCCESS)
    return r;
  *out = reinterpret_cast<CUgraphNode>(reply.fixed().node);
  if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    params->alloc.dptr = reply.fixed().value;
    call.remote().memory.add({params->alloc.dptr, params->alloc.bytesize, MemoryKind::kDevice, call.context(),
                              MemoryRun::kBorrowed | MemoryRun::kOfGraph});
  }
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    // The driver's array lives as long as the node does.
    auto bodies = std::make_unique<HandedOut>();
    bodies->bytes.assign(reply.tail(0).begin(), reply.tail(0).end());
    HandedOut& kept = call.remote().graphs.keep(reply.fixed().node, std::move(bodies));
    params->conditional.phGraph_out = reinterpret_cast<CUgraph*>(kept.bytes.data());
  }
  return CUDA_SUCCESS;
}

/// A query about a node without edge data, which returns nothing.
CUresult add(const char* name, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
             CUgraphNodeParams params) {
  return add(name, out, graph, dependencies, nullptr, count, &params);
}

/// `exec` null: the node of the graph.
CUresult set(const char* name, CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams* params) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, node); r != CUDA_SUCCESS) return r;
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const auto info = exec ? call.remote().graphs.exec(numberOf(exec)) : nullptr;
  if (exec && !info) return CUDA_ERROR_INVALID_VALUE;
  PackedNode packed;
  if (const CUresult r = pack(call, *params, packed); r != CUDA_SUCCESS) return r;
  const CUDA_MEMCPY3D* const copy = exec ? hostCopyOf(call, packed.record) : nullptr;
  if (copy && copy->Height * copy->Depth != 1) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphSetNode wire{};
  wire.exec = numberOf(exec);
  wire.node = numberOf(node);
  const std::vector<std::byte> bytes = packed.bytes();
  if (!exec) {
    call.remote().graphs.dropNode(wire.node);
    Session::Answer answer;
    return call.waitFor(wire, answer, std::span<const std::byte>(bytes));
  }
  // Programs that update kernels for each launch need no answer about arguments: all else has been accepted before.
  const bool isKernel = params->type == CU_GRAPH_NODE_TYPE_KERNEL;
  const KernelUpdate update = isKernel ? KernelUpdate::of(packed.record) : KernelUpdate{};
  if (isKernel && call.remote().graphs.isAccepted(wire.exec, wire.node, update))
    return call.post(cmd::GraphUpdateNode{.exec = wire.exec, .node = wire.node}, std::span<const std::byte>(bytes));
  Reply<cmd::GraphSetNodeReply> reply;
  if (const CUresult r = reply.of(call, wire, std::span<const std::byte>(bytes)); r != CUDA_SUCCESS) return r;
  ExecInfo fresh{info->flags, reply.fixed().hostFunctions, reply.fixed().hostCopies, info->keepsMemory, {}};
  if (const CUresult r = readSources(call, wire.exec, reply.fixed().sourceCount, reply.tail(0), fresh.sources);
      r != CUDA_SUCCESS)
    return r;
  call.remote().graphs.setExec(wire.exec, std::move(fresh));
  if (isKernel) call.remote().graphs.accept(wire.exec, wire.node, update);
  return CUDA_SUCCESS;
}

CUresult set(const char* name, CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& params) {
  return set(name, exec, node, &params);
}

/// A node's returned parameters.
struct Got {
  graph::NodeRecord record{};
  uint64_t root = 0;
  std::vector<std::byte> rest;
};

CUresult get(Call& call, CUgraphNode node, CUgraphNodeType wanted, const void* out, Got& got) {
  if (const CUresult r = check(call, node); r != CUDA_SUCCESS) return r;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphGetNode wire{};
  wire.node = numberOf(node);
  Reply<cmd::GraphGetNodeReply> reply;
  if (const CUresult r = reply.of(call, wire); r != CUDA_SUCCESS) return r;
  const auto bytes = reply.tail(0);
  if (bytes.size() < sizeof(got.record)) return CUDA_ERROR_UNKNOWN;
  std::memcpy(&got.record, bytes.data(), sizeof(got.record));
  got.root = reply.fixed().root;
  got.rest.assign(bytes.begin() + sizeof(got.record), bytes.end());
  if (const CUDA_MEMCPY3D* copy = hostCopyOf(call, got.record)) {
    got.record.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    got.record.copy = *copy;
  }
  return got.record.type == static_cast<uint32_t>(wanted) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HandedOut& keep(Call& call, CUgraphNode node, Got& got) {
  auto handedOut = std::make_unique<HandedOut>();
  handedOut->root = got.root;
  handedOut->bytes = std::move(got.rest);
  return call.remote().graphs.keep(numberOf(node), std::move(handedOut));
}

CUresult getKernel(const char* name, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  Call call(name, Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, node, CU_GRAPH_NODE_TYPE_KERNEL, out, got); r != CUDA_SUCCESS) return r;
  const auto& kernel = got.record.kernel;
  const HandleTable::Slot* slot = call.remote().handles.find(kernel.function);
  if (!slot || !slot->function || slot->function->parameterBytes != got.rest.size()) return CUDA_ERROR_INVALID_HANDLE;
  HandedOut& kept = keep(call, node, got);
  for (const FunctionInfo::Parameter& each : slot->function->parameters)
    kept.pointers.push_back(kept.bytes.data() + each.offset);
  *out = {};
  // The runtime uses its own handles for kernels. The handle that is not null counts, the function first.
  if (handle::kind(kernel.function) == HandleKind::kKernel)
    out->kern = reinterpret_cast<CUkernel>(kernel.function);
  else
    out->func = reinterpret_cast<CUfunction>(kernel.function);
  out->gridDimX = kernel.grid[0];
  out->gridDimY = kernel.grid[1];
  out->gridDimZ = kernel.grid[2];
  out->blockDimX = kernel.block[0];
  out->blockDimY = kernel.block[1];
  out->blockDimZ = kernel.block[2];
  out->sharedMemBytes = kernel.sharedBytes;
  out->kernelParams = kept.pointers.data();
  if (const Context* context = contextOf(slot->context)) out->ctx = const_cast<Context*>(context)->handle();
  return CUDA_SUCCESS;
}

CUresult getEvent(const char* name, CUgraphNode node, CUgraphNodeType type, CUevent* out) {
  Call call(name, Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, node, type, out, got); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUevent>(got.record.event);
  return CUDA_SUCCESS;
}

CUresult attribute(const char* name, CUgraphNode node, CUgraphNode other, uint32_t what, CUkernelNodeAttrID id,
                   const CUkernelNodeAttrValue* in, CUkernelNodeAttrValue* out) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, node); r != CUDA_SUCCESS) return r;
  cmd::GraphNodeAttribute wire{};
  wire.node = numberOf(node);
  wire.other = numberOf(other);
  wire.what = what;
  wire.attribute = static_cast<uint32_t>(id);
  if (in) std::memcpy(wire.value, in, sizeof(wire.value));
  cmd::GraphNodeAttributeReply reply{};
  const CUresult result = call.wait(wire, reply);
  if (result == CUDA_SUCCESS && out) std::memcpy(out, reply.value, sizeof(reply.value));
  return result;
}

CUresult enable(const char* name, CUgraphExec exec, CUgraphNode node, uint32_t value, unsigned* out) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = check(call, node); r != CUDA_SUCCESS) return r;
  cmd::GraphEnableNode wire{};
  wire.exec = numberOf(exec);
  wire.node = numberOf(node);
  wire.enable = value;
  cmd::GraphEnableNodeReply reply{};
  const CUresult result = call.wait(wire, reply);
  if (result == CUDA_SUCCESS && out) *out = reply.enabled;
  return result;
}

}  // namespace

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) noexcept {
  return add("cuGraphAddNode", phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}
CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams) noexcept {
  return add("cuGraphAddNode_v2", phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}
CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) noexcept {
  return set("cuGraphNodeSetParams", nullptr, hNode, nodeParams);
}
CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams) noexcept {
  if (!hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecNodeSetParams", hGraphExec, hNode, nodeParams);
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) noexcept {
  Call call("cuGraphNodeGetType", Needs::kNothing);
  if (const CUresult r = check(call, hNode); r != CUDA_SUCCESS) return r;
  if (!type) return CUDA_ERROR_INVALID_VALUE;
  cmd::GraphNodeType wire{};
  wire.node = numberOf(hNode);
  cmd::GraphNodeTypeReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  *type = static_cast<CUgraphNodeType>(reply.type);
  if (*type != CU_GRAPH_NODE_TYPE_HOST) return CUDA_SUCCESS;
  // It may be a copy that a function performs.
  Got got;
  const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_HOST, type, got);
  if (got.record.type == CU_GRAPH_NODE_TYPE_MEMCPY) *type = CU_GRAPH_NODE_TYPE_MEMCPY;
  return *type == CU_GRAPH_NODE_TYPE_MEMCPY ? CUDA_SUCCESS : r;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) noexcept {
  Call call("cuGraphDestroyNode", Needs::kNothing);
  if (const CUresult r = check(call, hNode); r != CUDA_SUCCESS) return r;
  cmd::GraphDestroyNode wire{};
  wire.node = numberOf(hNode);
  Session::Answer answer;
  const CUresult result = call.waitFor(wire, answer);
  if (result == CUDA_SUCCESS) call.remote().graphs.dropNode(wire.node);
  return result;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) noexcept {
  return enable("cuGraphNodeSetEnabled", hGraphExec, hNode, isEnabled ? 1 : 0, nullptr);
}
CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) noexcept {
  if (!isEnabled) return CUDA_ERROR_INVALID_VALUE;
  return enable("cuGraphNodeGetEnabled", hGraphExec, hNode, 2, isEnabled);
}

// Kernels

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return add("cuGraphAddKernelNode_v2", phGraphNode, hGraph, dependencies, numDependencies, nodeOf(*nodeParams));
}
CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const auto newer = as<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return api::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &newer);
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) noexcept {
  return getKernel("cuGraphKernelNodeGetParams_v2", hNode, nodeParams);
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS params{};
  const CUresult result = getKernel("cuGraphKernelNodeGetParams", hNode, &params);
  if (result != CUDA_SUCCESS) return result;
  *nodeParams = as<CUDA_KERNEL_NODE_PARAMS_v1>(params);
  if (!nodeParams->func) nodeParams->func = reinterpret_cast<CUfunction>(params.kern);
  return result;
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphKernelNodeSetParams_v2", nullptr, hNode, nodeOf(*nodeParams));
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const auto newer = as<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return api::cuGraphKernelNodeSetParams_v2(hNode, &newer);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams || !hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecKernelNodeSetParams_v2", hGraphExec, hNode, nodeOf(*nodeParams));
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const auto newer = as<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return api::cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &newer);
}
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) noexcept {
  if (!graph::is(graph::Tag::kNode, numberOf(src))) return CUDA_ERROR_INVALID_VALUE;
  return attribute("cuGraphKernelNodeCopyAttributes", dst, src, 2, CU_LAUNCH_ATTRIBUTE_IGNORE, nullptr, nullptr);
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) noexcept {
  if (!value_out) return CUDA_ERROR_INVALID_VALUE;
  return attribute("cuGraphKernelNodeGetAttribute", hNode, nullptr, 0, attr, nullptr, value_out);
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) noexcept {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return attribute("cuGraphKernelNodeSetAttribute", hNode, nullptr, 1, attr, value, nullptr);
}

// Copies and fills

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext ctx) noexcept {
  if (!copyParams) return CUDA_ERROR_INVALID_VALUE;
  return add("cuGraphAddMemcpyNode", phGraphNode, hGraph, dependencies, numDependencies, nodeOf(*copyParams, ctx));
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) noexcept {
  Call call("cuGraphMemcpyNodeGetParams", Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams, got); r != CUDA_SUCCESS) return r;
  *nodeParams = got.record.copy.whole();
  return CUDA_SUCCESS;
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphMemcpyNodeSetParams", nullptr, hNode, nodeOf(*nodeParams));
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D* copyParams,
                                        CUcontext ctx) noexcept {
  if (!copyParams || !hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecMemcpyNodeSetParams", hGraphExec, hNode, nodeOf(*copyParams, ctx));
}
CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                              CUcontext ctx) noexcept {
  if (!memsetParams) return CUDA_ERROR_INVALID_VALUE;
  return add("cuGraphAddMemsetNode", phGraphNode, hGraph, dependencies, numDependencies, nodeOf(*memsetParams, ctx));
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) noexcept {
  Call call("cuGraphMemsetNodeGetParams", Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, got); r != CUDA_SUCCESS) return r;
  *nodeParams = got.record.fill.whole();
  return CUDA_SUCCESS;
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphMemsetNodeSetParams", nullptr, hNode, nodeOf(*nodeParams));
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) noexcept {
  if (!memsetParams || !hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecMemsetNodeSetParams", hGraphExec, hNode, nodeOf(*memsetParams, ctx));
}

// Functions of the program

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return add("cuGraphAddHostNode", phGraphNode, hGraph, dependencies, numDependencies, nodeOf(*nodeParams));
}
CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) noexcept {
  Call call("cuGraphHostNodeGetParams", Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, got); r != CUDA_SUCCESS) return r;
  nodeParams->fn = reinterpret_cast<CUhostFn>(got.record.host.function);
  nodeParams->userData = reinterpret_cast<void*>(got.record.host.data);
  return CUDA_SUCCESS;
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphHostNodeSetParams", nullptr, hNode, nodeOf(*nodeParams));
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams || !hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecHostNodeSetParams", hGraphExec, hNode, nodeOf(*nodeParams));
}

// Child graphs, and empty nodes

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, CUgraph childGraph) noexcept {
  return add("cuGraphAddChildGraphNode", phGraphNode, hGraph, dependencies, numDependencies, childNode(childGraph));
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) noexcept {
  Call call("cuGraphChildGraphNodeGetGraph", Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph, got); r != CUDA_SUCCESS) return r;
  *phGraph = reinterpret_cast<CUgraph>(got.record.child.graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) noexcept {
  if (!hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecChildGraphNodeSetParams", hGraphExec, hNode, childNode(childGraph));
}
CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                             size_t numDependencies) noexcept {
  return add("cuGraphAddEmptyNode", phGraphNode, hGraph, dependencies, numDependencies,
             nodeOf(CU_GRAPH_NODE_TYPE_EMPTY));
}

// Events

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                   size_t numDependencies, CUevent event) noexcept {
  return add("cuGraphAddEventRecordNode", phGraphNode, hGraph, dependencies, numDependencies, recordNode(event));
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, CUevent event) noexcept {
  return add("cuGraphAddEventWaitNode", phGraphNode, hGraph, dependencies, numDependencies, waitNode(event));
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) noexcept {
  return getEvent("cuGraphEventRecordNodeGetEvent", hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) noexcept {
  return getEvent("cuGraphEventWaitNodeGetEvent", hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) noexcept {
  return set("cuGraphEventRecordNodeSetEvent", nullptr, hNode, recordNode(event));
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) noexcept {
  return set("cuGraphEventWaitNodeSetEvent", nullptr, hNode, waitNode(event));
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) noexcept {
  if (!hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecEventRecordNodeSetEvent", hGraphExec, hNode, recordNode(event));
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) noexcept {
  if (!hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecEventWaitNodeSetEvent", hGraphExec, hNode, waitNode(event));
}

// Memory

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params = nodeOf(*nodeParams);
  const CUresult result =
      add("cuGraphAddMemAllocNode", phGraphNode, hGraph, dependencies, nullptr, numDependencies, &params);
  if (result == CUDA_SUCCESS) nodeParams->dptr = params.alloc.dptr;
  return result;
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) noexcept {
  Call call("cuGraphMemAllocNodeGetParams", Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out, got); r != CUDA_SUCCESS) return r;
  const HandedOut& kept = keep(call, hNode, got);
  *params_out = {};
  params_out->poolProps = got.record.allocation.pool.whole();
  params_out->bytesize = got.record.allocation.bytes;
  params_out->dptr = got.record.allocation.address;
  params_out->accessDescCount = got.record.count;
  params_out->accessDescs = kept.bytes.empty() ? nullptr : reinterpret_cast<const CUmemAccessDesc*>(kept.bytes.data());
  return CUDA_SUCCESS;
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                               size_t numDependencies, CUdeviceptr dptr) noexcept {
  return add("cuGraphAddMemFreeNode", phGraphNode, hGraph, dependencies, numDependencies, freeNode(dptr));
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) noexcept {
  Call call("cuGraphMemFreeNodeGetParams", Needs::kNothing);
  Got got;
  if (const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out, got); r != CUDA_SUCCESS) return r;
  *dptr_out = OwnAddress::of(got.record.address);
  return CUDA_SUCCESS;
}

// Memory operations

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return add("cuGraphAddBatchMemOpNode", phGraphNode, hGraph, dependencies, numDependencies, nodeOf(*nodeParams));
}
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) noexcept {
  Call call("cuGraphBatchMemOpNodeGetParams", Needs::kCurrent);
  Got got;
  if (const CUresult r = get(call, hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out, got); r != CUDA_SUCCESS)
    return r;
  HandedOut& kept = keep(call, hNode, got);
  *nodeParams_out = {};
  if (Context* context = contextOf(call.context())) nodeParams_out->ctx = context->handle();
  nodeParams_out->count = got.record.count;
  nodeParams_out->flags = got.record.operationFlags;
  nodeParams_out->paramArray = reinterpret_cast<CUstreamBatchMemOpParams*>(kept.bytes.data());
  return CUDA_SUCCESS;
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphBatchMemOpNodeSetParams", nullptr, hNode, nodeOf(*nodeParams));
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) noexcept {
  if (!nodeParams || !hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return set("cuGraphExecBatchMemOpNodeSetParams", hGraphExec, hNode, nodeOf(*nodeParams));
}

}  // namespace millpond::client::api
