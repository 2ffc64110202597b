// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes of work and the order between them, before they are made executable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/engine/launch.h"
#include "softgpu/driver/engine/transfer.h"
#include "softgpu/driver/graphs/graph_footprint.h"
#include "softgpu/driver/model/capture_point.h"
#include "softgpu/driver/model/context.h"
#include "softgpu/driver/model/event.h"

namespace millpond::softgpu {

class Graph;
class GraphExec;
using GraphPtr = std::shared_ptr<Graph>;

/// Calls the program's function when its last reference is released. References are counted twice: those that the
/// program holds, and those of graphs.
class UserObject {
 public:
  UserObject(CUhostFn destroy, void* data) : destroy_(destroy), data_(data) {}
  ~UserObject() { destroy_(data_); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

  unsigned programReferences = 0;

 private:
  const CUhostFn destroy_;
  void* const data_;
};

struct AllocationWork;

/// Memory of an allocation node, or of several that use it one after the other: it exists while a graph has the node,
/// or while a launch has left it for the program.
class GraphMemory {
 public:
  static CUresult allocate(const ContextPtr& context, uint64_t bytes, std::shared_ptr<GraphMemory>* memory);
  /// Whether memory of a node begins there.
  static bool isOne(uint64_t address);
  static bool isLeft(uint64_t address);
  /// A launch has allocated it, and not freed it.
  static void leave(const AllocationWork& work);
  /// False if no launch has left it.
  static bool takeBack(uint64_t address);
  GraphMemory(ContextPtr context, uint64_t address, uint64_t bytes);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  unsigned device() const;

 private:
  const ContextPtr context_;
  const uint64_t address_;
  const uint64_t bytes_;
};

// The work of a node

struct KernelWork {
  CUfunction handle = nullptr;  ///< as specified by the program
  CUcontext contextHandle = nullptr;
  ContextPtr context;
  PreparedLaunch launch;
  std::vector<CUlaunchAttribute> attributes;

  void setAttributes(std::vector<CUlaunchAttribute> all) {
    attributes = std::move(all);
    launch.shape.isCooperative = isCooperative(attributes);
  }
};
struct CopyWork {
  CUDA_MEMCPY3D params{};
  CUcontext contextHandle = nullptr;
  ContextPtr context;
  Copy copy;
};
struct FillWork {
  CUDA_MEMSET_NODE_PARAMS params{};
  ContextPtr context;
};
struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct ChildWork {
  GraphPtr graph;
};
struct EventWork {
  CUevent handle = nullptr;
  std::shared_ptr<Event> event;
  bool records = false;
};
struct AllocationWork {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  std::vector<CUmemAccessDesc> access;
  std::shared_ptr<GraphMemory> memory;
  std::shared_ptr<GraphSpace> space;
  GraphSpace::Place place;  ///< in it
};
struct FreeWork {
  CUdeviceptr address = 0;
};
/// Selects among its bodies by a condition, as `type` specifies, possibly repeatedly.
struct ConditionalWork {
  CUgraphConditionalHandle condition = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  ContextPtr context;
  std::vector<GraphPtr> bodies;
  std::vector<CUgraph> handles;  ///< of the bodies: the program keeps a pointer to them
};
/// Writes of words, and waits for them.
struct WordsWork {
  std::vector<CUstreamBatchMemOpParams> operations;
  ContextPtr context;
};
struct EmptyWork {};
using NodeWork = std::variant<EmptyWork, KernelWork, CopyWork, FillWork, HostWork, ChildWork, EventWork, AllocationWork,
                              FreeWork, ConditionalWork, WordsWork>;
CUgraphNodeType typeOf(const NodeWork& work);
/// The graphs in a node: a child graph, or the bodies to select from.
std::span<const GraphPtr> graphsIn(const NodeWork& work);

/// Set by kernels, and by launches if requested.
struct Condition {
  CUgraphConditionalHandle handle = 0;  ///< unique
  unsigned initial = 0;
  bool startsInitial = false;
};

/// The conditions of a graph and of the graphs in it, and those that its nodes evaluate.
struct ConditionsOf {
  explicit ConditionsOf(const Graph& graph);
  std::vector<Condition> all;
  std::set<CUgraphConditionalHandle> asked;
};

/// Whether an edge between nodes of such work may have these ports and this type.
bool canConnect(const NodeWork& from, const NodeWork& to, const CUgraphEdgeData& data);

struct GraphNode {
  using Edge = GraphEdge;
  Graph* graph = nullptr;
  const GraphNode* origin = nullptr;  ///< in a clone: the node from which this one was made, which may no longer exist
  NodeWork work;
  std::vector<Edge> after;
  std::vector<void*> parameterPointers;  ///< what cuGraphKernelNodeGetParams returns
  bool isEnabled = true;                 ///< in executable graphs only
  CUgraphNode handle() const { return reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(this)); }
};

class Graph : public std::enable_shared_from_this<Graph> {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  CUgraph handle() const { return reinterpret_cast<CUgraph>(const_cast<Graph*>(this)); }
  const std::vector<std::shared_ptr<GraphNode>>& nodes() const { return nodes_; }

  /// `after` must be nodes of this graph.
  GraphNode& add(NodeWork work, std::vector<GraphNode::Edge> after);
  void remove(GraphNode& node);
  /// CUDA_ERROR_INVALID_VALUE for an edge that already exists, that cannot be (canConnect), or that would close a cycle.
  CUresult addEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
  /// CUDA_ERROR_INVALID_VALUE if there is no such edge with the same data.
  CUresult removeEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
  /// Whether the memory of `allocation` is free when a node that follows `after` runs.
  bool isFreedBefore(const GraphNode& allocation, const std::vector<GraphNode::Edge>& after) const;
  bool owns(const GraphNode* node) const { return node && node->graph == this; }

  /// A separate graph with the same nodes, including child graphs; each node knows its origin.
  GraphPtr clone() const;
  /// The node of a clone that was made from `origin`; child graphs are searched too. Null if there is none.
  GraphNode* madeFrom(const GraphNode* origin);

  /// Whether `other` is this graph, or one around it.
  bool isWithin(const Graph& other) const;

  /// The node whose child graph this is; such a graph ends with the node.
  const GraphNode* parent = nullptr;
  /// Made by clone() from this graph, which may no longer exist.
  const Graph* clonedFrom = nullptr;
  /// The graph of an executable graph: no handle refers to it.
  bool isHidden = false;
  std::map<std::shared_ptr<UserObject>, unsigned> userObjects;
  std::vector<Condition> conditions;
  std::map<unsigned, std::shared_ptr<GraphSpace>> spaces;  ///< by device: of its allocations
  std::weak_ptr<const GraphExec> executable;               ///< the last executable graph that was made from it

 private:
  GraphPtr copy(bool hidden) const;
  friend class GraphExec;
  std::vector<std::shared_ptr<GraphNode>> nodes_;  // in the order of their creation
};

/// Held by every call about graphs, and while a stream is captured.
std::recursive_mutex& graphMutex();

}  // namespace millpond::softgpu
