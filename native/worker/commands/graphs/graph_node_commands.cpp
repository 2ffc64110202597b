// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_node_commands.h"

#include <algorithm>
#include <cstring>

namespace millpond::worker {
namespace {

/// Whether the node takes ownership of a graph instead of a clone.
bool movesGraph(const CUgraphNodeParams& node) {
  return node.type == CU_GRAPH_NODE_TYPE_GRAPH && node.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
}

}  // namespace

CUresult GraphNodeCommands::onGraphAddNode(const cmd::Decoded<cmd::GraphAddNode>& command) {
  const auto& in = command.fixed;
  const GraphTable::Graph* graph = graphs_.graph(in.graph);
  if (!driver_.cuGraphAddNode_v2) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<CUgraphNode> after;
  std::vector<CUgraphEdgeData> edges;
  if (!graph || !graphs_.dependencies(in.graph, command.tail[0], command.tail[1], in.hasEdges, after, edges))
    return CUDA_ERROR_INVALID_VALUE;
  const std::vector<std::byte> record(command.tail[2].begin(), command.tail[2].end());
  NodeParams node;
  if (CUresult rc = reader_.read(record, node)) return rc;
  uint64_t childNumber = 0;
  if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) childNumber = graphs_.numberOf(node.params.graph.graph);
  const bool isMoved = movesGraph(node.params);
  // A graph cannot become part of itself, nor can a clone of it: the driver crashes.
  if (childNumber && graphs_.isWithin(in.graph, childNumber)) return CUDA_ERROR_INVALID_VALUE;
  // A clone has all nodes of the child; a moved graph has already been counted.
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
  reader_.adoptAllocation(answer.node, node);
  std::vector<uint64_t> bodies;
  if (node.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) answer.value = node.params.alloc.dptr;
  if (isMoved) {
    nodeCount_.move(childNumber, graph->root);
    graphs_.move(childNumber, answer.node);
  } else if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph clone = nullptr;
    if (driver_.cuGraphChildGraphNodeGetGraph(made, &clone) == CUDA_SUCCESS) {
      graphs_.adoptChild(answer.node, clone);
      clones_.copySpecials(childNumber, graphs_.numberOf(clone));
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

CUresult GraphNodeCommands::onGraphSetNode(const cmd::Decoded<cmd::GraphSetNode>& command) {
  const auto& in = command.fixed;
  if (!graphs_.node(in.node)) return CUDA_ERROR_INVALID_VALUE;
  GraphExecs::Exec* const exec = execs_.find(in.exec);
  if (in.exec && !exec) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGraphNodeSetParams || !driver_.cuGraphExecNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
  const std::vector<std::byte> record(command.tail[0].begin(), command.tail[0].end());
  NodeParams node;
  if (CUresult rc = reader_.read(record, node)) return rc;
  // The present graph would have to end, and executable graphs refer to it.
  if (movesGraph(node.params)) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t owner = in.exec ? in.exec : graphs_.node(in.node)->graph;
  if (!nodeCount_.grow(owner, in.node, record.size())) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUgraphNode handle = graphs_.node(in.node)->handle;
  const CUresult rc = in.exec ? driver_.cuGraphExecNodeSetParams(exec->handle, handle, &node.params)
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
  auto contents = std::make_shared<ExecContents>(*exec->contents);
  if (node.params.type == CU_GRAPH_NODE_TYPE_MEMCPY) contents->stages.erase(in.node);
  if (node.stage) contents->stages[in.node] = node.stage;
  if (node.call) contents->calls[in.node] = node.call;
  if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    // The functions and copies of the previous graph stay registered beside those of the new one.
    contents_.add(graphs_.numberOf(node.params.graph.graph), *contents);
  }
  cmd::GraphSetNodeReply answer{};
  answer.hostFunctions = static_cast<uint32_t>(contents->calls.size());
  answer.hostCopies = contents->hostCopies();
  const std::vector<graph::Source> sources = contents->sources(0, answer.sourceCount);
  exec->contents = std::move(contents);
  reply(answer, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult GraphNodeCommands::onGraphUpdateNode(const cmd::Decoded<cmd::GraphUpdateNode>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  if (!node || !command.fixed.exec) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (CUresult rc = driver_.cuGraphNodeGetType(node->handle, &type)) return rc;
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_HOST || type == CU_GRAPH_NODE_TYPE_GRAPH)
    return violation("nodes of this type cannot be updated");
  cmd::Decoded<cmd::GraphSetNode> wanted;
  wanted.fixed.exec = command.fixed.exec;
  wanted.fixed.node = command.fixed.node;
  wanted.tail = command.tail;
  const CUresult rc = onGraphSetNode(wanted);
  session_.clearReply();
  return rc;
}

CUresult GraphNodeCommands::onGraphDestroyNode(const cmd::Decoded<cmd::GraphDestroyNode>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult rc = driver_.cuGraphDestroyNode(node->handle)) return rc;
  graphs_.dropNode(command.fixed.node);
  return CUDA_SUCCESS;
}

CUresult GraphNodeCommands::onGraphNodeType(const cmd::Decoded<cmd::GraphNodeType>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (CUresult rc = driver_.cuGraphNodeGetType(node->handle, &type)) return rc;
  reply(cmd::GraphNodeTypeReply{.type = static_cast<uint32_t>(type)});
  return CUDA_SUCCESS;
}

uint64_t GraphNodeCommands::wireOf(HandleKind kind, const void* object) {
  uint64_t found = 0;
  handles_.each(kind, [&](const HandleMap::Entry& entry) {
    if (entry.object == object) found = entry.wire;
  });
  return found;
}

CUresult GraphNodeCommands::writeKernel(const GraphTable::Node& node, graph::NodeRecord& record,
                                        std::vector<std::byte>& rest) {
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

CUresult GraphNodeCommands::onGraphGetNode(const cmd::Decoded<cmd::GraphGetNode>& command) {
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
        copy.srcArray = reinterpret_cast<CUarray>(wireOf(HandleKind::kArray, copy.srcArray));
        copy.dstArray = reinterpret_cast<CUarray>(wireOf(HandleKind::kArray, copy.dstArray));
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
      record.host = {node->call->callback.function, node->call->callback.data, node->call->isCopy, 0};
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
      record.event = wireOf(HandleKind::kEvent, event);
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

CUresult GraphNodeCommands::onGraphEnableNode(const cmd::Decoded<cmd::GraphEnableNode>& command) {
  const auto& in = command.fixed;
  const GraphTable::Node* node = graphs_.node(in.node);
  GraphExecs::Exec* const exec = execs_.find(in.exec);
  if (!node || !exec) return CUDA_ERROR_INVALID_VALUE;
  unsigned enabled = in.enable;
  const CUresult rc = in.enable == 2 ? driver_.cuGraphNodeGetEnabled(exec->handle, node->handle, &enabled)
                                     : driver_.cuGraphNodeSetEnabled(exec->handle, node->handle, enabled);
  if (rc) return rc;
  reply(cmd::GraphEnableNodeReply{.enabled = enabled});
  return CUDA_SUCCESS;
}

CUresult GraphNodeCommands::onGraphNodeAttribute(const cmd::Decoded<cmd::GraphNodeAttribute>& command) {
  const auto& in = command.fixed;
  const GraphTable::Node* node = graphs_.node(in.node);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  const auto attribute = static_cast<CUlaunchAttributeID>(in.attribute);
  CUlaunchAttributeValue value{};
  static_assert(sizeof(value) == sizeof(in.value));
  CUresult rc;
  if (in.what <= 1 && in.attribute > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
    return CUDA_ERROR_INVALID_VALUE;
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
