// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_commands.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "base/unique_fd.h"

namespace millpond::worker {
namespace {

/// The flags that a graph's printed description may have: none for handles and functions, which are addresses of this
/// process.
constexpr unsigned kShownDotFlags =
    CU_GRAPH_DEBUG_DOT_FLAGS_RUNTIME_TYPES | CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS |
    CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS | CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS |
    CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS | CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_SIGNAL_NODE_PARAMS |
    CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_WAIT_NODE_PARAMS | CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES |
    CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS | CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS |
    CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS | CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO |
    CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS;

/// The verbose description contains everything that may be shown.
unsigned shownDotFlags(unsigned flags) {
  return flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE ? kShownDotFlags : flags & kShownDotFlags;
}

/// Hexadecimal digits that could be an address become `x`, whichever driver wrote them.
void maskAddresses(std::string& text) {
  const auto isDigit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find_if_not(at, text.end(), isDigit);
    const auto before = at - text.begin();
    const bool isPrefixed = before >= 2 && at[-2] == '0' && (at[-1] == 'x' || at[-1] == 'X');
    const bool isWord = before >= 1 && (std::isalnum(static_cast<unsigned char>(at[-1])) || at[-1] == '_');
    // Shorter runs are numbers, not addresses of a process.
    if (end - at >= (isPrefixed ? 8 : 12) && (isPrefixed || !isWord)) std::fill(at, end, 'x');
    at = end == at ? at + 1 : end;
  }
}

std::span<const std::byte> bytesOf(const std::vector<uint64_t>& numbers) { return std::as_bytes(std::span(numbers)); }

}  // namespace

CUresult GraphCommands::onGraphCreate(const cmd::Decoded<cmd::GraphCreate>& command) {
  if (!driver_.cuGraphCreate || !driver_.cuGraphAddNode_v2) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraph graph = nullptr;
  if (CUresult rc = driver_.cuGraphCreate(&graph, command.fixed.flags)) return rc;
  reply(cmd::GraphCreateReply{graphs_.adopt(graph)});
  return CUDA_SUCCESS;
}

CUresult GraphCommands::onGraphDestroy(const cmd::Decoded<cmd::GraphDestroy>& command) {
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (!graph || graph->root != command.fixed.graph) return CUDA_ERROR_INVALID_VALUE;
  const CUgraph handle = graph->handle;
  if (CUresult rc = driver_.cuGraphDestroy(handle)) return rc;
  graphs_.dropGraph(command.fixed.graph);
  nodeCount_.give(command.fixed.graph);
  graphs_.dropConditions();
  hostMemory_.releaseForgotten();
  return CUDA_SUCCESS;
}

CUresult GraphCommands::onGraphList(const cmd::Decoded<cmd::GraphList>& command) {
  const auto& in = command.fixed;
  const bool ofNode = in.what >= 3;
  uint64_t owner = in.object;
  CUgraphNode node = nullptr;
  if (ofNode) {
    const GraphTable::Node* entry = graphs_.node(in.object);
    if (!entry) return CUDA_ERROR_INVALID_VALUE;
    node = entry->handle;
    owner = entry->graph;
  }
  const GraphTable::Graph* graph = graphs_.graph(owner);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> nodes, others;
  std::vector<CUgraphEdgeData> edges;
  size_t count = 0;
  const auto ask = [&](bool fill) -> CUresult {
    CUgraphNode* first = fill ? nodes.data() : nullptr;
    CUgraphNode* second = fill ? others.data() : nullptr;
    CUgraphEdgeData* data = fill ? edges.data() : nullptr;
    switch (in.what) {
      case 0: return driver_.cuGraphGetNodes(graph->handle, first, &count);
      case 1: return driver_.cuGraphGetRootNodes(graph->handle, first, &count);
      case 2: return driver_.cuGraphGetEdges_v2(graph->handle, first, second, data, &count);
      case 3: return driver_.cuGraphNodeGetDependencies_v2(node, first, data, &count);
      case 4: return driver_.cuGraphNodeGetDependentNodes_v2(node, first, data, &count);
      default: return violation("an empty list");
    }
  };
  if (CUresult rc = ask(false)) return rc;
  nodes.resize(count);
  others.resize(in.what == 2 ? count : 0);
  edges.resize(in.what >= 2 ? count : 0);
  if (count)
    if (CUresult rc = ask(true)) return rc;
  const size_t begin = std::min<size_t>(in.first, count);
  const size_t end = std::min<size_t>(begin + graph::kListPage, count);
  std::vector<uint64_t> page, otherPage;
  for (size_t i = begin; i < end; ++i) {
    page.push_back(graphs_.adopt(owner, nodes[i]));
    if (!others.empty()) otherPage.push_back(graphs_.adopt(owner, others[i]));
  }
  const std::span<const CUgraphEdgeData> edgePage =
      edges.empty() ? std::span<const CUgraphEdgeData>{}
                    : std::span<const CUgraphEdgeData>(edges).subspan(begin, end - begin);
  reply(cmd::GraphListReply{.total = static_cast<uint32_t>(count)}, bytesOf(page), bytesOf(otherPage),
        std::as_bytes(edgePage));
  return CUDA_SUCCESS;
}

CUresult GraphCommands::onGraphDepend(const cmd::Decoded<cmd::GraphDepend>& command) {
  const auto& in = command.fixed;
  const GraphTable::Graph* graph = graphs_.graph(in.graph);
  std::vector<CUgraphNode> from, to;
  std::vector<CUgraphEdgeData> edges, none;
  if (!graph || !graphs_.dependencies(in.graph, command.tail[0], command.tail[2], in.hasEdges, from, edges) ||
      !graphs_.dependencies(in.graph, command.tail[1], {}, false, to, none) || from.size() != to.size())
    return CUDA_ERROR_INVALID_VALUE;
  const CUgraphEdgeData* data = edges.empty() ? nullptr : edges.data();
  return in.remove ? driver_.cuGraphRemoveDependencies_v2(graph->handle, from.data(), to.data(), data, from.size())
                   : driver_.cuGraphAddDependencies_v2(graph->handle, from.data(), to.data(), data, from.size());
}

// Objects of a graph

CUresult GraphCommands::onGraphConditional(const cmd::Decoded<cmd::GraphConditional>& command) {
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (!graph || !contexts_.bound()) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGraphConditionalHandleCreate) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphConditionalHandle handle = 0;
  if (CUresult rc = driver_.cuGraphConditionalHandleCreate(
          &handle, graph->handle, contexts_.at(contexts_.bound()).handle, command.fixed.initial, command.fixed.flags))
    return rc;
  graphs_.addCondition(handle, command.fixed.graph);
  reply(cmd::GraphConditionalReply{handle});
  return CUDA_SUCCESS;
}

CUresult GraphCommands::onGraphDot(const cmd::Decoded<cmd::GraphDot>& command) {
  const auto& in = command.fixed;
  const GraphTable::Graph* graph = graphs_.graph(in.graph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGraphDebugDotPrint) return CUDA_ERROR_NOT_SUPPORTED;
  if (in.offset == 0) {
    // The driver can only write files: this one is in memory, so no folder need be writable.
    const UniqueFd file(::memfd_create("millpond-graph", MFD_CLOEXEC));
    if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
    const std::string path = "/proc/self/fd/" + std::to_string(file.get());
    if (const CUresult rc = driver_.cuGraphDebugDotPrint(graph->handle, path.c_str(), shownDotFlags(in.flags)))
      return rc;
    dot_.clear();
    char piece[16384];
    ssize_t n = 0;
    while ((n = ::pread(file.get(), piece, sizeof(piece), static_cast<off_t>(dot_.size()))) > 0)
      dot_.append(piece, static_cast<size_t>(n));
    if (n < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    maskAddresses(dot_);
  }
  const size_t begin = std::min<size_t>(in.offset, dot_.size());
  const size_t bytes = std::min<size_t>(graph::kTextPage, dot_.size() - begin);
  reply(cmd::GraphDotReply{.total = static_cast<uint32_t>(dot_.size())},
        std::as_bytes(std::span(dot_.data() + begin, bytes)));
  return CUDA_SUCCESS;
}

CUresult GraphCommands::onGraphMemory(const cmd::Decoded<cmd::GraphMemory>& command) {
  const auto& in = command.fixed;
  CUdevice target = 0;
  if (!device(in.device, target)) return violation("no device of the session");
  if (!driver_.cuDeviceGetGraphMemAttribute || !driver_.cuDeviceGraphMemTrim) return CUDA_ERROR_NOT_SUPPORTED;
  cuuint64_t value = in.value;
  const auto attribute = static_cast<CUgraphMem_attribute>(in.attribute);
  CUresult rc;
  if (in.what == 0)
    rc = driver_.cuDeviceGetGraphMemAttribute(target, attribute, &value);
  else if (in.what == 1)
    rc = driver_.cuDeviceSetGraphMemAttribute(target, attribute, &value);
  else
    rc = driver_.cuDeviceGraphMemTrim(target);
  if (rc) return rc;
  reply(cmd::GraphMemoryReply{value});
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
