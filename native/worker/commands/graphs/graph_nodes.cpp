// SPDX-License-Identifier: Apache-2.0
// Graph nodes: converts their parameters between the wire and the driver.
#include <algorithm>
#include <cstring>

#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr uint32_t kMaxAccess = 64;

/// Whether the node takes ownership of a graph instead of a clone.
bool movesGraph(const CUgraphNodeParams& node) {
  return node.type == CU_GRAPH_NODE_TYPE_GRAPH && node.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
}

}  // namespace

CUresult Executor::readKernel(const graph::NodeRecord& record, std::span<const std::byte> rest, NodeParams& out) {
  const uint64_t wire = record.kernel.function;
  CUfunction function = nullptr;
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!functions_.functionOrKernel(wire, function)) return violation("unknown function");
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const FunctionInfo& info = functions_.info(wire);
  if (rest.size() != info.parameterBytes || record.count != rest.size())
    return violation("a kernel node with " + std::to_string(rest.size()) + " bytes of parameters instead of " +
                     std::to_string(info.parameterBytes));
  out.bytes.assign(rest.begin(), rest.end());
  for (size_t i = 0; i < info.layout.size(); i += 2) out.pointers.push_back(out.bytes.data() + info.layout[i]);
  auto& kernel = out.params.kernel;
  kernel.func = function;
  kernel.gridDimX = record.kernel.grid[0];
  kernel.gridDimY = record.kernel.grid[1];
  kernel.gridDimZ = record.kernel.grid[2];
  kernel.blockDimX = record.kernel.block[0];
  kernel.blockDimY = record.kernel.block[1];
  kernel.blockDimZ = record.kernel.block[2];
  kernel.sharedMemBytes = record.kernel.sharedBytes;
  kernel.kernelParams = out.pointers.empty() ? nullptr : out.pointers.data();
  kernel.ctx = contexts_.at(contexts_.bound()).handle;
  return CUDA_SUCCESS;
}

CUresult Executor::readAllocation(const graph::NodeRecord& record, std::span<const std::byte> rest, NodeParams& out) {
  if (record.count > kMaxAccess || rest.size() != record.count * sizeof(CUmemAccessDesc))
    return violation("access descriptions of " + std::to_string(rest.size()) + " bytes");
  auto& allocation = out.params.alloc;
  allocation.poolProps = record.allocation.pool.numbers();
  if (allocation.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  // Memory that a graph allocates is its own.
  if (allocation.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemLocation& location = allocation.poolProps.location;
  CUdevice real = 0;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device(location.id, real)) return CUDA_ERROR_INVALID_VALUE;
  ClaimBudget& budget = budgets_.at(static_cast<size_t>(location.id));
  // The driver counts such memory, and the counts cannot be set.
  if (trace_ == cmd::Op{}) trace_ = cmd::Op::kGraphMemory;
  location.id = real;
  out.access.resize(record.count);
  if (!rest.empty()) std::memcpy(out.access.data(), rest.data(), rest.size());
  for (CUmemAccessDesc& each : out.access)
    if (each.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device(each.location.id, each.location.id))
      return CUDA_ERROR_INVALID_VALUE;
  allocation.accessDescs = out.access.empty() ? nullptr : out.access.data();
  allocation.accessDescCount = out.access.size();
  const uint64_t bytes = record.allocation.bytes;
  allocation.bytesize = bytes;
  // The driver allocates it from its own pool: it counts while a graph has the node, or a launch has left it.
  if (!budget.take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  budgets_.publish();
  out.allocation = std::shared_ptr<GraphAllocation>(std::make_unique<GraphAllocation>().release(),
                                                    [this, &budget, bytes](GraphAllocation* gone) {
                                                      const std::unique_ptr<GraphAllocation> end(gone);
                                                      budget.give({bytes});
                                                      budgets_.publish();
                                                    });
  out.allocation->bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult Executor::readNode(std::span<const std::byte> bytes, NodeParams& out) {
  graph::NodeRecord record;
  if (bytes.size() < sizeof(record)) return violation("a node of " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&record, bytes.data(), sizeof(record));
  const auto rest = bytes.subspan(sizeof(record));
  out.params.type = static_cast<CUgraphNodeType>(record.type);
  switch (out.params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return readKernel(record, rest, out);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return readCopy(record, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: return readFill(record, out);
    case CU_GRAPH_NODE_TYPE_HOST:
      if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
      out.call = graphCalls_.of({CallbackKind::kHostFunction, contexts_.primaryOf(contexts_.bound()),
                                 record.host.function, record.host.data, 0});
      if (!out.call) return CUDA_ERROR_OUT_OF_MEMORY;
      out.params.host = {&HostCall::runNode, const_cast<HostCall*>(out.call)};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const GraphTable::Graph* child = graphs_.graph(record.child.graph);
      if (!child) return CUDA_ERROR_INVALID_VALUE;
      switch (record.child.ownership) {
        case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE: break;
        case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE:
          // A graph that is part of another one cannot be moved out of it.
          if (child->root != record.child.graph) return CUDA_ERROR_INVALID_VALUE;
          break;
        default: return CUDA_ERROR_INVALID_VALUE;
      }
      out.params.graph.graph = child->handle;
      out.params.graph.ownership = static_cast<CUgraphChildGraphNodeOwnership>(record.child.ownership);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY: return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      CUevent event = nullptr;
      if (!handle(HandleKind::kEvent, record.event, event)) return violation("unknown event");
      if (!event) return CUDA_ERROR_INVALID_HANDLE;
      (out.params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? out.params.eventWait.event : out.params.eventRecord.event) =
          event;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return readAllocation(record, rest, out);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      // Found in a table that has only memory of this session's graphs.
      if (!graphMemory_.contains(AddressGate::key(record.address))) return CUDA_ERROR_INVALID_VALUE;
      out.params.free.dptr = AddressGate::key(record.address);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
      if (CUresult rc = operations_.admit(rest, out.operations, true)) return rc;
      if (record.count != out.operations.size()) return violation("another number of memory operations than was said");
      out.params.memOp = {contexts_.at(contexts_.bound()).handle, record.count, out.operations.data(),
                          record.operationFlags};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
      if (record.conditional.bodies > graph::kMaxBodies) return CUDA_ERROR_NOT_SUPPORTED;
      // A graph that the driver created for this session and that still exists.
      if (!graphs_.hasCondition(record.conditional.handle)) return CUDA_ERROR_INVALID_VALUE;
      out.params.conditional.handle = record.conditional.handle;
      out.params.conditional.type = static_cast<CUgraphConditionalNodeType>(record.conditional.kind);
      out.params.conditional.size = record.conditional.bodies;
      out.params.conditional.ctx = contexts_.at(contexts_.bound()).handle;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

void Executor::adoptAllocation(uint64_t node, const NodeParams& params) {
  if (params.params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) graphMemory_.willFree(params.params.free.dptr);
  if (!params.allocation) return;
  params.allocation->address = params.params.alloc.dptr;
  graphMemory_.add(params.allocation);
  graphs_.node(node)->allocation = params.allocation;
  graphs_.markSpecial(node);
}

CUresult Executor::onGraphAddNode(const cmd::Decoded<cmd::GraphAddNode>& command) {
  const auto& in = command.fixed;
  const GraphTable::Graph* graph = graphs_.graph(in.graph);
  if (!driver_.cuGraphAddNode_v2) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<CUgraphNode> after;
  std::vector<CUgraphEdgeData> edges;
  if (!graph || !graphs_.dependencies(in.graph, command.tail[0], command.tail[1], in.hasEdges, after, edges))
    return CUDA_ERROR_INVALID_VALUE;
  const std::vector<std::byte> record(command.tail[2].begin(), command.tail[2].end());
  NodeParams node;
  if (CUresult rc = readNode(record, node)) return rc;
  uint64_t childNumber = 0;
  if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) childNumber = graphs_.numberOf(node.params.graph.graph);
  const bool isMoved = movesGraph(node.params);
  // A graph does not become part of itself.
  if (isMoved && graph->root == childNumber) return CUDA_ERROR_INVALID_VALUE;
  // A clone has all nodes of the child; a moved graph is already counted.
  GraphNodes more = GraphNodes::one(record.size());
  if (childNumber && !isMoved) more += nodeCount_.of(childNumber);
  if (!nodeCount_.take(more)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphNode made = nullptr;
  if (CUresult rc = driver_.cuGraphAddNode_v2(&made, graph->handle, after.data(),
                                              edges.empty() ? nullptr : edges.data(), after.size(), &node.params)) {
    nodeCount_.drop();
    return rc;
  }
  nodeCount_.keep(graph->root);
  cmd::GraphAddNodeReply answer{};
  answer.node = graphs_.adopt(in.graph, made);
  GraphTable::Node& entry = *graphs_.node(answer.node);
  entry.stage = node.stage;
  entry.call = node.call;
  if (!entry.isPlain()) graphs_.markSpecial(answer.node);
  adoptAllocation(answer.node, node);
  std::vector<uint64_t> bodies;
  if (node.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) answer.value = node.params.alloc.dptr;
  if (isMoved) {
    nodeCount_.move(childNumber, graph->root);
    graphs_.move(childNumber, answer.node);
  } else if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph clone = nullptr;
    if (driver_.cuGraphChildGraphNodeGetGraph(made, &clone) == CUDA_SUCCESS) {
      graphs_.adoptChild(answer.node, clone);
      graphClones_.copySpecials(childNumber, graphs_.numberOf(clone));
    }
  }
  if (node.params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL && node.params.conditional.phGraph_out)
    for (uint32_t i = 0; i < node.params.conditional.size; ++i) {
      graphs_.adoptChild(answer.node, node.params.conditional.phGraph_out[i]);
      bodies.push_back(graphs_.numberOf(node.params.conditional.phGraph_out[i]));
    }
  reply(answer, std::as_bytes(std::span<const uint64_t>(bodies)));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphSetNode(const cmd::Decoded<cmd::GraphSetNode>& command) {
  const auto& in = command.fixed;
  if (!graphs_.node(in.node)) return CUDA_ERROR_INVALID_VALUE;
  const auto exec = execs_.find(in.exec);
  if (in.exec && exec == execs_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGraphNodeSetParams || !driver_.cuGraphExecNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
  const std::vector<std::byte> record(command.tail[0].begin(), command.tail[0].end());
  NodeParams node;
  if (CUresult rc = readNode(record, node)) return rc;
  // The present graph would have to end, and executable graphs refer to it.
  if (movesGraph(node.params)) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t owner = in.exec ? in.exec : graphs_.node(in.node)->graph;
  if (!nodeCount_.grow(owner, in.node, record.size())) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUgraphNode handle = graphs_.node(in.node)->handle;
  const CUresult rc = in.exec ? driver_.cuGraphExecNodeSetParams(exec->second.handle, handle, &node.params)
                              : driver_.cuGraphNodeSetParams(handle, &node.params);
  if (rc) return rc;
  if (!in.exec) {
    GraphTable::Node& entry = *graphs_.node(in.node);
    entry.stage = node.stage;
    entry.call = node.call;
    if (!entry.isPlain()) graphs_.markSpecial(in.node);
    reply(cmd::GraphSetNodeReply{}, std::span<const std::byte>{});
    return CUDA_SUCCESS;
  }
  auto contents = std::make_shared<ExecContents>(*exec->second.contents);
  if (node.params.type == CU_GRAPH_NODE_TYPE_MEMCPY) contents->stages.erase(in.node);
  if (node.stage) contents->stages[in.node] = node.stage;
  if (node.call) contents->calls[in.node] = node.call;
  if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    // The functions and copies of the previous graph stay registered beside those of the new one.
    graphContents_.add(graphs_.numberOf(node.params.graph.graph), *contents);
  }
  cmd::GraphSetNodeReply answer{};
  answer.hostFunctions = static_cast<uint32_t>(contents->calls.size());
  const std::vector<graph::Source> sources = contents->sources(0, answer.sourceCount);
  exec->second.contents = std::move(contents);
  reply(answer, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphUpdateNode(const cmd::Decoded<cmd::GraphUpdateNode>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  if (!node || !command.fixed.exec) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (CUresult rc = driver_.cuGraphNodeGetType(node->handle, &type)) return rc;
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_HOST || type == CU_GRAPH_NODE_TYPE_GRAPH)
    return violation("what changes with such a node nobody would hear of");
  cmd::Decoded<cmd::GraphSetNode> wanted;
  wanted.fixed.exec = command.fixed.exec;
  wanted.fixed.node = command.fixed.node;
  wanted.tail = command.tail;
  const CUresult rc = onGraphSetNode(wanted);
  session_.clearReply();
  return rc;
}

CUresult Executor::onGraphDestroyNode(const cmd::Decoded<cmd::GraphDestroyNode>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult rc = driver_.cuGraphDestroyNode(node->handle)) return rc;
  graphs_.dropNode(command.fixed.node);
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphNodeType(const cmd::Decoded<cmd::GraphNodeType>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (CUresult rc = driver_.cuGraphNodeGetType(node->handle, &type)) return rc;
  reply(cmd::GraphNodeTypeReply{.type = static_cast<uint32_t>(type)});
  return CUDA_SUCCESS;
}

uint64_t Executor::wireEvent(CUevent event) {
  uint64_t found = 0;
  handles_.each(HandleKind::kEvent, [&](const HandleMap::Entry& entry) {
    if (entry.object == event) found = entry.wire;
  });
  return found;
}

CUresult Executor::writeKernel(const GraphTable::Node& node, graph::NodeRecord& record, std::vector<std::byte>& rest) {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (CUresult rc = driver_.cuGraphKernelNodeGetParams_v2(node.handle, &params)) return rc;
  record.kernel = {functions_.wireOf(params.func, params.kern),
                   {params.gridDimX, params.gridDimY, params.gridDimZ},
                   {params.blockDimX, params.blockDimY, params.blockDimZ},
                   params.sharedMemBytes,
                   0};
  if (!record.kernel.function) return CUDA_ERROR_NOT_FOUND;
  const FunctionInfo& info = functions_.info(record.kernel.function);
  rest.resize(info.parameterBytes);
  record.count = info.parameterBytes;
  if (params.kernelParams) {
    for (size_t i = 0; i * 2 < info.layout.size(); ++i)
      std::memcpy(rest.data() + info.layout[2 * i], params.kernelParams[i], info.layout[2 * i + 1]);
  } else if (params.extra) {
    for (void** at = params.extra; *at != CU_LAUNCH_PARAM_END; at += 2)
      if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER && !rest.empty()) std::memcpy(rest.data(), at[1], rest.size());
  }
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphGetNode(const cmd::Decoded<cmd::GraphGetNode>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (CUresult rc = driver_.cuGraphNodeGetType(node->handle, &type)) return rc;
  graph::NodeRecord record{};
  record.type = static_cast<uint32_t>(type);
  std::vector<std::byte> rest;
  const auto isPinned = [this](const void* host) {
    return hostRuns_.contains(reinterpret_cast<uint64_t>(host), 1, false);
  };
  CUresult rc = CUDA_SUCCESS;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: rc = writeKernel(*node, record, rest); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (node->stage) {
        record.copy = node->stage->original;
      } else {
        CUDA_MEMCPY3D copy{};
        rc = driver_.cuGraphMemcpyNodeGetParams(node->handle, &copy);
        copy.reserved0 = copy.reserved1 = nullptr;
        // The client does not know buffers of this worker.
        if (copy.srcMemoryType == CU_MEMORYTYPE_HOST && !isPinned(copy.srcHost)) copy.srcHost = nullptr;
        if (copy.dstMemoryType == CU_MEMORYTYPE_HOST && !isPinned(copy.dstHost)) copy.dstHost = nullptr;
        record.copy = copy;
      }
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS fill{};
      rc = driver_.cuGraphMemsetNodeGetParams(node->handle, &fill);
      record.fill = fill;
      break;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      if (!node->call) return CUDA_ERROR_NOT_FOUND;
      record.host = {node->call->callback.function, node->call->callback.data};
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      CUgraph child = nullptr;
      rc = driver_.cuGraphChildGraphNodeGetGraph(node->handle, &child);
      if (!rc) {
        graphs_.adoptChild(command.fixed.node, child);
        node = graphs_.node(command.fixed.node);
        record.child = {graphs_.numberOf(child), 0, 0};
      }
      break;
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      CUevent event = nullptr;
      rc = type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? driver_.cuGraphEventWaitNodeGetEvent(node->handle, &event)
                                                 : driver_.cuGraphEventRecordNodeGetEvent(node->handle, &event);
      record.event = wireEvent(event);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS params{};
      rc = driver_.cuGraphMemAllocNodeGetParams(node->handle, &params);
      if (rc) break;
      const auto ordinal = [this](CUmemLocation& location) {
        for (size_t i = 0; i < devices_.all().size(); ++i)
          if (devices_.all()[i].device == location.id) return location.id = static_cast<int>(i);
        return location.id;
      };
      ordinal(params.poolProps.location);
      params.poolProps.win32SecurityAttributes = nullptr;
      record.allocation.pool = params.poolProps;
      record.allocation.bytes = params.bytesize;
      record.allocation.address = params.dptr;
      std::vector<CUmemAccessDesc> access(params.accessDescs, params.accessDescs + params.accessDescCount);
      for (CUmemAccessDesc& each : access) ordinal(each.location);
      record.count = static_cast<uint32_t>(access.size());
      const auto bytes = std::as_bytes(std::span(access));
      rest.assign(bytes.begin(), bytes.end());
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      CUdeviceptr address = 0;
      rc = driver_.cuGraphMemFreeNodeGetParams(node->handle, &address);
      record.address = address;
      break;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      if (!driver_.cuGraphBatchMemOpNodeGetParams) return CUDA_ERROR_NOT_SUPPORTED;
      CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
      rc = driver_.cuGraphBatchMemOpNodeGetParams(node->handle, &params);
      if (rc) break;
      record.count = params.count;
      record.operationFlags = params.flags;
      const auto bytes = std::as_bytes(std::span(params.paramArray, params.count));
      rest.assign(bytes.begin(), bytes.end());
      break;
    }
    default: break;
  }
  if (rc) return rc;
  std::vector<std::byte> bytes(sizeof(record) + rest.size());
  std::memcpy(bytes.data(), &record, sizeof(record));
  if (!rest.empty()) std::memcpy(bytes.data() + sizeof(record), rest.data(), rest.size());
  reply(cmd::GraphGetNodeReply{.root = graphs_.graph(node->graph)->root}, std::span<const std::byte>(bytes));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphEnableNode(const cmd::Decoded<cmd::GraphEnableNode>& command) {
  const auto& in = command.fixed;
  const GraphTable::Node* node = graphs_.node(in.node);
  const auto exec = execs_.find(in.exec);
  if (!node || exec == execs_.end()) return CUDA_ERROR_INVALID_VALUE;
  unsigned enabled = in.enable;
  const CUresult rc = in.enable == 2 ? driver_.cuGraphNodeGetEnabled(exec->second.handle, node->handle, &enabled)
                                     : driver_.cuGraphNodeSetEnabled(exec->second.handle, node->handle, enabled);
  if (rc) return rc;
  reply(cmd::GraphEnableNodeReply{.enabled = enabled});
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphNodeAttribute(const cmd::Decoded<cmd::GraphNodeAttribute>& command) {
  const auto& in = command.fixed;
  const GraphTable::Node* node = graphs_.node(in.node);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  const auto attribute = static_cast<CUlaunchAttributeID>(in.attribute);
  CUlaunchAttributeValue value{};
  static_assert(sizeof(value) == sizeof(in.value));
  CUresult rc;
  // Values that hold the driver's own handles are not transferred in either direction.
  const LaunchAttributeKind kind = kindOf(attribute);
  if (in.what <= 1 && kind != LaunchAttributeKind::kPlain && kind != LaunchAttributeKind::kWindow)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (in.what == 0) {
    rc = driver_.cuGraphKernelNodeGetAttribute(node->handle, attribute, &value);
  } else if (in.what == 1) {
    rc = operations_.attribute(attribute, Crossing<CUlaunchAttributeValue>::in(in.value), value, true);
    if (rc) return rc;
    rc = driver_.cuGraphKernelNodeSetAttribute(node->handle, attribute, &value);
  } else {
    const GraphTable::Node* from = graphs_.node(in.other);
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    rc = driver_.cuGraphKernelNodeCopyAttributes(node->handle, from->handle);
  }
  if (rc) return rc;
  cmd::GraphNodeAttributeReply answer{};
  std::memcpy(answer.value, &value, sizeof(value));
  reply(answer);
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
