// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/graphs/graph_exec.h"

#include <algorithm>
#include <map>
#include <set>

#include "softgpu/driver/engine/host_function.h"
#include "softgpu/driver/graphs/condition_values.h"
#include "softgpu/driver/graphs/graph_handles.h"

namespace millpond::softgpu {
namespace {

using Members = std::vector<Context::GroupMember>;
using Values = std::shared_ptr<ConditionValues>;

/// The work of one node, run in its turn.
struct Step {
  Operation::Kind kind = Operation::Kind::brief;
  std::function<void()> body;
};
using Sequence = std::vector<std::function<void()>>;

/// The nodes in topological order: each after its dependencies.
std::vector<const GraphNode*> inOrder(const Graph& graph) {
  std::map<const GraphNode*, size_t> missing;
  std::map<const GraphNode*, std::vector<const GraphNode*>> dependents;
  std::vector<const GraphNode*> order;
  for (const auto& node : graph.nodes()) {
    missing[node.get()] = node->after.size();
    for (const GraphNode::Edge& edge : node->after) dependents[edge.from].push_back(node.get());
    if (node->after.empty()) order.push_back(node.get());
  }
  for (size_t i = 0; i < order.size(); ++i)
    for (const GraphNode* dependent : dependents[order[i]])
      if (--missing[dependent] == 0) order.push_back(dependent);
  return order;
}

CUresult choiceOf(const ConditionalWork& work, const Values& values, std::function<void()>* body);

/// For nodes that run by themselves; none for the others.
CUresult stepOf(const NodeWork& work, const Values& values, Step* step) {
  PreparedTransfer prepared;
  if (const auto* kernel = std::get_if<KernelWork>(&work)) {
    *step = {Operation::Kind::work, launchBody(kernel->context, kernel->launch, values)};
  } else if (const auto* copy = std::get_if<CopyWork>(&work)) {
    if (CUresult result = prepareCopy(copy->context, copy->copy, &prepared)) return result;
    *step = {prepared.kind, std::move(prepared.body)};
  } else if (const auto* fill = std::get_if<FillWork>(&work)) {
    if (CUresult result = prepareFill(fill->context, fillOf(fill->params), &prepared)) return result;
    *step = {prepared.kind, std::move(prepared.body)};
  } else if (const auto* host = std::get_if<HostWork>(&work)) {
    *step = {Operation::Kind::host, hostFunctionBody([host = *host] { host.function(host.data); })};
  } else if (const auto* words = std::get_if<WordsWork>(&work)) {
    if (CUresult result = prepareWords(words->context, words->operations, &prepared)) return result;
    *step = {prepared.kind, std::move(prepared.body)};
  } else if (const auto* conditional = std::get_if<ConditionalWork>(&work)) {
    step->kind = Operation::Kind::work;
    return choiceOf(*conditional, values, &step->body);
  }
  return CUDA_SUCCESS;
}

/// The graph's nodes, one after the other.
CUresult addInTurn(const Graph& graph, const Values& values, Sequence& sequence) {
  for (const GraphNode* node : inOrder(graph)) {
    if (!node->isEnabled) continue;
    if (const auto* child = std::get_if<ChildWork>(&node->work)) {
      if (CUresult result = addInTurn(*child->graph, values, sequence)) return result;
      continue;
    }
    Step step;
    if (CUresult result = stepOf(node->work, values, &step)) return result;
    if (step.body) sequence.push_back(std::move(step.body));
  }
  return CUDA_SUCCESS;
}

/// The work that evaluates a condition and runs bodies: one piece of work of the stream.
CUresult choiceOf(const ConditionalWork& work, const Values& values, std::function<void()>* body) {
  std::vector<Sequence> bodies(work.bodies.size());
  for (size_t i = 0; i < bodies.size(); ++i)
    if (CUresult result = addInTurn(*work.bodies[i], values, bodies[i])) return result;
  *body = [context = work.context, type = work.type, condition = work.condition, values, bodies = std::move(bodies)] {
    const auto run = [&](size_t which) {
      if (which >= bodies.size()) return;
      for (const auto& each : bodies[which])
        if (context->fault() == CUDA_SUCCESS) each();
    };
    switch (type) {
      case CU_GRAPH_COND_TYPE_IF: return run(values->of(condition) != 0 ? 0 : 1);
      case CU_GRAPH_COND_TYPE_SWITCH: return run(values->of(condition));
      case CU_GRAPH_COND_TYPE_WHILE:
        while (values->of(condition) != 0 && context->fault() == CUDA_SUCCESS) run(0);
    }
  };
  return CUDA_SUCCESS;
}

CUresult addMember(const GraphNode& node, const Values& values, Context::GroupMember member, Members& members) {
  if (node.isEnabled) {
    if (const auto* event = std::get_if<EventWork>(&node.work)) {
      if (event->records) {
        Event::Recording recording = event->event->prepare();
        member.body = std::move(recording.body);
        member.always = true;
        member.submitted = std::move(recording.submitted);
      } else {
        member.alsoAfter = [event = event->event] { return event->point(); };
      }
    } else {
      Step step;
      if (CUresult result = stepOf(node.work, values, &step)) return result;
      member.kind = step.kind;
      member.body = std::move(step.body);
    }
  }
  members.push_back(std::move(member));
  return CUDA_SUCCESS;
}

/// Adds the graph's nodes; those without a predecessor wait for `before`. `ends`: those for which nothing waits.
CUresult flatten(const Graph& graph, const Values& values, const std::vector<size_t>& before, Members& members,
                 std::vector<size_t>& ends) {
  std::map<const GraphNode*, size_t> places;
  std::map<const GraphNode*, bool> isEnd;
  for (const GraphNode* node : inOrder(graph)) {
    std::vector<size_t> after;
    for (const GraphNode::Edge& edge : node->after) {
      after.push_back(places[edge.from]);
      isEnd[edge.from] = false;
    }
    if (after.empty()) after = before;
    isEnd[node] = true;
    if (const auto* child = std::get_if<ChildWork>(&node->work); child && node->isEnabled) {
      std::vector<size_t> childEnds;
      if (CUresult result = flatten(*child->graph, values, after, members, childEnds)) return result;
      after.insert(after.end(), childEnds.begin(), childEnds.end());
    }
    Context::GroupMember member;
    member.after = std::move(after);
    if (CUresult result = addMember(*node, values, std::move(member), members)) return result;
    places[node] = members.size() - 1;
  }
  for (const auto& [node, place] : places)
    if (isEnd[node]) ends.push_back(place);
  return CUDA_SUCCESS;
}

/// The effect of a graph's launch on memory, in the order in which its nodes were created.
struct MemoryEffects {
  std::vector<const AllocationWork*> allocated;
  std::vector<uint64_t> freed;

  explicit MemoryEffects(const Graph& graph) { collect(graph); }

  std::set<GraphFootprint*> footprints() const {
    std::set<GraphFootprint*> all;
    for (const AllocationWork* each : allocated) all.insert(&each->space->footprint());
    return all;
  }

  /// Memory both allocated and freed is reused by the queue's next launch; the rest is left to the program.
  void apply(const void* queue) const {
    std::vector<const AllocationWork*> kept = allocated;
    for (const AllocationWork* each : allocated) each->space->hold(each->place, queue);
    for (const uint64_t address : freed) {
      const auto own = std::find_if(kept.begin(), kept.end(),
                                    [&](const AllocationWork* each) { return each->memory->address() == address; });
      if (own == kept.end()) {
        GraphMemory::takeBack(address);
      } else {
        (*own)->space->releaseBehind((*own)->place, queue);
        kept.erase(own);
      }
    }
    for (const AllocationWork* each : kept) GraphMemory::leave(*each);
  }

 private:
  void collect(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      if (const auto* allocation = std::get_if<AllocationWork>(&node->work)) allocated.push_back(allocation);
      if (const auto* free = std::get_if<FreeWork>(&node->work)) freed.push_back(free->address);
      for (const GraphPtr& each : graphsIn(node->work)) collect(*each);
    }
  }
};

/// Whether two nodes, if they evaluate conditions, do so in the same way.
bool isSameChoice(const NodeWork& from, const NodeWork& to) {
  const auto* mine = std::get_if<ConditionalWork>(&from);
  const auto* other = std::get_if<ConditionalWork>(&to);
  return !mine || (mine->type == other->type && mine->bodies.size() == other->bodies.size());
}

/// Whether two nodes, if they copy, do so between the same kinds of memory. An H100 refuses others (580.159.04).
bool isSameDirection(const NodeWork& from, const NodeWork& to) {
  const auto* mine = std::get_if<CopyWork>(&from);
  const auto* other = std::get_if<CopyWork>(&to);
  return !mine || (mine->params.srcMemoryType == other->params.srcMemoryType &&
                   mine->params.dstMemoryType == other->params.dstMemoryType);
}

bool isSameFill(const NodeWork& from, const NodeWork& to) {
  const auto* mine = std::get_if<FillWork>(&from);
  const auto* other = std::get_if<FillWork>(&to);
  return !mine || !other || canBecome(mine->params, other->params);
}

/// Whether the parameters of one graph may be copied to the other; if not, the difference that prevents it.
CUgraphExecUpdateResult compare(const Graph& mine, const Graph& other, const GraphNode** error,
                                const GraphNode** errorFrom) {
  *error = *errorFrom = nullptr;
  if (mine.nodes().size() != other.nodes().size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  std::map<const GraphNode*, size_t> places;
  for (size_t i = 0; i < other.nodes().size(); ++i) {
    places[mine.nodes()[i].get()] = i;
    places[other.nodes()[i].get()] = i;
  }
  for (size_t i = 0; i < other.nodes().size(); ++i) {
    const GraphNode& from = *mine.nodes()[i];
    const GraphNode& to = *other.nodes()[i];
    *error = &to;
    if (typeOf(from.work) != typeOf(to.work)) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (from.after.size() != to.after.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t e = 0; e < from.after.size(); ++e) {
      if (places[from.after[e].from] == places[to.after[e].from]) continue;
      *errorFrom = to.after[e].from;
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    if (!isSameChoice(from.work, to.work)) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    if (!isSameDirection(from.work, to.work) || !isSameFill(from.work, to.work))
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    for (size_t g = 0; g < graphsIn(from.work).size(); ++g) {
      const auto result = compare(*graphsIn(from.work)[g], *graphsIn(to.work)[g], error, errorFrom);
      if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
    if (std::holds_alternative<AllocationWork>(from.work) &&
        std::get<AllocationWork>(from.work).params.dptr != std::get<AllocationWork>(to.work).params.dptr)
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  *error = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

void takeOver(Graph& mine, const Graph& other) {
  mine.conditions = other.conditions;
  for (size_t i = 0; i < other.nodes().size(); ++i) {
    GraphNode& to = *mine.nodes()[i];
    const NodeWork& work = other.nodes()[i]->work;
    const std::span<const GraphPtr> within = graphsIn(to.work);
    for (size_t g = 0; g < within.size(); ++g) takeOver(*within[g], *graphsIn(work)[g]);
    if (auto* conditional = std::get_if<ConditionalWork>(&to.work))
      conditional->condition = std::get<ConditionalWork>(work).condition;
    else if (within.empty())
      to.work = work;
  }
}

}  // namespace

bool canBecome(const CUDA_MEMSET_NODE_PARAMS& from, const CUDA_MEMSET_NODE_PARAMS& to) {
  if (from.height <= 1 && to.height <= 1) return true;
  return from.height == to.height && from.width == to.width && from.pitch == to.pitch &&
         from.elementSize == to.elementSize;
}

GraphPtr GraphExec::asGraph() const {
  if (!ConditionsOf(*graph_).all.empty()) return nullptr;
  GraphPtr graph = graph_->clone();
  GraphHandles::instance().graphs.add(graph);
  return graph;
}

void GraphExec::upload() const {
  const MemoryEffects effects(*graph_);
  const auto isLeft = [](const AllocationWork* each) { return GraphMemory::isLeft(each->memory->address()); };
  if (std::any_of(effects.allocated.begin(), effects.allocated.end(), isLeft)) return;
  for (const AllocationWork* each : effects.allocated) each->space->hold(each->place, nullptr);
  for (const AllocationWork* each : effects.allocated) each->space->release(each->place);
}

CUresult GraphExec::launch(const StreamTarget& stream) {
  const MemoryEffects effects(*graph_);
  // Memory left by the previous launch must be freed first.
  for (const AllocationWork* each : effects.allocated) {
    const uint64_t address = each->memory->address();
    if (!GraphMemory::isLeft(address)) continue;
    if (!(flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)) return CUDA_ERROR_INVALID_VALUE;
    GraphMemory::takeBack(address);
  }
  Members members;
  std::vector<size_t> ends;
  if (CUresult result = flatten(*graph_, std::make_shared<ConditionValues>(*graph_), {}, members, ends)) return result;
  const void* queue = stream.queue.get();
  for (GraphFootprint* footprint : effects.footprints()) {
    footprint->enterQueue(queue);
    Context::GroupMember last;
    last.body = [footprint, queue] { footprint->leaveQueue(queue); };
    last.after = ends;
    last.always = true;
    members.push_back(std::move(last));
  }
  effects.apply(queue);
  last_ = stream.context->enqueueGroup(stream.queue, std::move(members), last_);
  return CUDA_SUCCESS;
}

CUgraphExecUpdateResult GraphExec::update(const Graph& graph, const GraphNode** error, const GraphNode** errorFrom) {
  const auto result = compare(*graph_, graph, error, errorFrom);
  if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) takeOver(*graph_, graph);
  return result;
}

CUresult GraphExec::updateChild(GraphNode& node, const Graph& graph) {
  const auto* child = std::get_if<ChildWork>(&node.work);
  if (!child) return CUDA_ERROR_INVALID_VALUE;
  const GraphNode* error = nullptr;
  const GraphNode* errorFrom = nullptr;
  if (compare(*child->graph, graph, &error, &errorFrom) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  takeOver(*child->graph, graph);
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu
