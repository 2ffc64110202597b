// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/graphs/graph.h"

#include <algorithm>
#include <set>

#include "softgpu/driver/graphs/graph_handles.h"
#include "softgpu/driver/memory/device_memory.h"
#include "softgpu/driver/model/device.h"

namespace millpond::softgpu {
namespace {

/// The accounting of all memory nodes. Guarded by graphMutex(), and never destroyed.
struct MemoryBooks {
  std::set<uint64_t> addresses;
  std::map<uint64_t, AllocationWork> left;  ///< by address
};

MemoryBooks& books() {
  static auto& all = *std::make_unique<MemoryBooks>().release();
  return all;
}

/// Whether `to` can be reached from `from` along edges.
bool leadsTo(const GraphNode* from, const GraphNode* to) {
  // Along the edges backwards, from `to`.
  std::vector<const GraphNode*> open = {to};
  std::set<const GraphNode*> seen;
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (node == from) return true;
    if (!seen.insert(node).second) continue;
    for (const GraphNode::Edge& edge : node->after) open.push_back(edge.from);
  }
  return false;
}

}  // namespace

std::recursive_mutex& graphMutex() {
  static auto& mutex = *std::make_unique<std::recursive_mutex>().release();
  return mutex;
}

CUresult GraphMemory::allocate(const ContextPtr& context, uint64_t bytes, std::shared_ptr<GraphMemory>* memory) {
  uint64_t address = 0;
  if (CUresult result = DeviceMemory::instance().memory().allocate(*context, bytes, &address)) return result;
  *memory = std::make_shared<GraphMemory>(context, address, bytes);
  return CUDA_SUCCESS;
}

GraphMemory::GraphMemory(ContextPtr context, uint64_t address, uint64_t bytes)
    : context_(std::move(context)), address_(address), bytes_(bytes) {
  std::lock_guard lock(graphMutex());
  books().addresses.insert(address_);
}

GraphMemory::~GraphMemory() {
  {
    std::lock_guard lock(graphMutex());
    books().addresses.erase(address_);
  }
  // Its context may have ended and reclaimed the memory.
  DeviceMemory::instance().memory().free(*context_, address_);
}

unsigned GraphMemory::device() const { return context_->device().ordinal(); }

bool GraphMemory::isOne(uint64_t address) {
  std::lock_guard lock(graphMutex());
  return books().addresses.contains(address);
}

bool GraphMemory::isLeft(uint64_t address) {
  std::lock_guard lock(graphMutex());
  return books().left.contains(address);
}

void GraphMemory::leave(const AllocationWork& work) {
  std::lock_guard lock(graphMutex());
  books().left.emplace(work.memory->address(), work);
}

bool GraphMemory::takeBack(uint64_t address) {
  AllocationWork last;  // destroyed after the lock is released
  std::lock_guard lock(graphMutex());
  const auto found = books().left.find(address);
  if (found == books().left.end()) return false;
  last = std::move(found->second);
  books().left.erase(found);
  last.space->release(last.place);
  return true;
}

CUgraphNodeType typeOf(const NodeWork& work) {
  struct Visitor {
    CUgraphNodeType operator()(const EmptyWork&) const { return CU_GRAPH_NODE_TYPE_EMPTY; }
    CUgraphNodeType operator()(const KernelWork&) const { return CU_GRAPH_NODE_TYPE_KERNEL; }
    CUgraphNodeType operator()(const CopyWork&) const { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    CUgraphNodeType operator()(const FillWork&) const { return CU_GRAPH_NODE_TYPE_MEMSET; }
    CUgraphNodeType operator()(const HostWork&) const { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const ChildWork&) const { return CU_GRAPH_NODE_TYPE_GRAPH; }
    CUgraphNodeType operator()(const EventWork& event) const {
      return event.records ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    }
    CUgraphNodeType operator()(const AllocationWork&) const { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
    CUgraphNodeType operator()(const FreeWork&) const { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    CUgraphNodeType operator()(const ConditionalWork&) const { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
    CUgraphNodeType operator()(const WordsWork&) const { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  };
  return std::visit(Visitor{}, work);
}

std::span<const GraphPtr> graphsIn(const NodeWork& work) {
  if (const auto* child = std::get_if<ChildWork>(&work)) return {&child->graph, 1};
  if (const auto* conditional = std::get_if<ConditionalWork>(&work)) return conditional->bodies;
  return {};
}

ConditionsOf::ConditionsOf(const Graph& graph) : all(graph.conditions) {
  for (const auto& node : graph.nodes()) {
    if (const auto* work = std::get_if<ConditionalWork>(&node->work)) asked.insert(work->condition);
    for (const GraphPtr& each : graphsIn(node->work)) {
      const ConditionsOf within(*each);
      all.insert(all.end(), within.all.begin(), within.all.end());
      asked.insert(within.asked.begin(), within.asked.end());
    }
  }
}

Graph::~Graph() {
  if (isHidden) return;
  for (const auto& node : nodes_) {
    GraphHandles::instance().nodes.remove(node->handle());
    for (const GraphPtr& each : graphsIn(node->work)) GraphHandles::instance().graphs.remove(each->handle());
  }
}

GraphNode& Graph::add(NodeWork work, std::vector<GraphNode::Edge> after) {
  auto node = std::make_shared<GraphNode>();
  node->graph = this;
  node->work = std::move(work);
  node->after = std::move(after);
  for (const GraphPtr& each : graphsIn(node->work)) each->parent = node.get();
  nodes_.push_back(node);
  if (!isHidden) GraphHandles::instance().nodes.add(node);
  return *node;
}

void Graph::remove(GraphNode& node) {
  for (const auto& other : nodes_)
    std::erase_if(other->after, [&](const GraphNode::Edge& edge) { return edge.from == &node; });
  for (const GraphPtr& each : graphsIn(node.work)) GraphHandles::instance().graphs.remove(each->handle());
  GraphHandles::instance().nodes.remove(node.handle());
  std::erase_if(nodes_, [&](const auto& each) { return each.get() == &node; });
}

bool canConnect(const NodeWork& from, const NodeWork& to, const CUgraphEdgeData& data) {
  const bool isReserved =
      std::any_of(std::begin(data.reserved), std::end(data.reserved), [](auto each) { return each; });
  if (isReserved || data.to_port != 0) return false;
  const bool fromKernel = std::holds_alternative<KernelWork>(from);
  const bool atLaunch = data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  switch (data.type) {
    case CU_GRAPH_DEPENDENCY_TYPE_DEFAULT:
      return data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT || (fromKernel && atLaunch);
    case CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC:
      return fromKernel && std::holds_alternative<KernelWork>(to) &&
             (atLaunch || data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    default: return false;
  }
}

bool Graph::isWithin(const Graph& other) const { return this == &other || (parent && parent->graph->isWithin(other)); }

CUresult Graph::addEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  if (!owns(&from) || !owns(&to) || leadsTo(&to, &from)) return CUDA_ERROR_INVALID_VALUE;
  if (!canConnect(from.work, to.work, data)) return CUDA_ERROR_INVALID_VALUE;
  for (const GraphNode::Edge& edge : to.after)
    if (edge.from == &from) return CUDA_ERROR_INVALID_VALUE;
  to.after.push_back({&from, data});
  return CUDA_SUCCESS;
}

CUresult Graph::removeEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  if (!owns(&from) || !owns(&to)) return CUDA_ERROR_INVALID_VALUE;
  const auto isIt = [&](const GraphNode::Edge& edge) {
    return edge.from == &from && edge.data.type == data.type && edge.data.from_port == data.from_port &&
           edge.data.to_port == data.to_port;
  };
  return std::erase_if(to.after, isIt) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool Graph::isFreedBefore(const GraphNode& allocation, const std::vector<GraphNode::Edge>& after) const {
  const uint64_t address = std::get<AllocationWork>(allocation.work).memory->address();
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    const auto* free = std::get_if<FreeWork>(&node->work);
    return free && free->address == address && leadsTo(&allocation, node.get()) &&
           std::any_of(after.begin(), after.end(),
                       [&](const GraphNode::Edge& edge) { return leadsTo(node.get(), edge.from); });
  });
}

GraphPtr Graph::copy(bool hidden) const {
  auto made = std::make_shared<Graph>();
  made->isHidden = hidden;
  made->clonedFrom = this;
  made->userObjects = userObjects;
  made->conditions = conditions;
  std::map<const GraphNode*, GraphNode*> counterparts;
  for (const auto& node : nodes_) {
    NodeWork work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work)) {
      child->graph = child->graph->copy(hidden);
      if (!hidden) GraphHandles::instance().graphs.add(child->graph);
    }
    // Only into executable graphs, which have no handles.
    if (auto* conditional = std::get_if<ConditionalWork>(&work))
      for (GraphPtr& each : conditional->bodies) each = each->copy(hidden);
    GraphNode& twin = made->add(std::move(work), {});
    twin.origin = node.get();
    counterparts[node.get()] = &twin;
  }
  for (const auto& node : nodes_)
    for (const GraphNode::Edge& edge : node->after)
      counterparts[node.get()]->after.push_back({counterparts[edge.from], edge.data});
  return made;
}

GraphPtr Graph::clone() const { return copy(false); }

GraphNode* Graph::madeFrom(const GraphNode* origin) {
  for (const auto& node : nodes_) {
    if (node->origin == origin) return node.get();
    for (const GraphPtr& each : graphsIn(node->work))
      if (GraphNode* found = each->madeFrom(origin)) return found;
  }
  return nullptr;
}

}  // namespace millpond::softgpu
