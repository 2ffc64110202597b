// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_clones.h"

#include <vector>

namespace millpond::worker {

void GraphClones::copySpecials(uint64_t from, uint64_t to) {
  const GraphTable::Graph* source = graphs_.graph(from);
  const GraphTable::Graph* target = graphs_.graph(to);
  if (!source || !target) return;
  const std::vector<uint64_t> special(source->special.begin(), source->special.end());
  const CUgraph handle = target->handle;
  for (const uint64_t each : special) {
    CUgraphNode twin = nullptr;
    if (driver_.cuGraphNodeFindInClone(&twin, graphs_.node(each)->handle, handle)) continue;
    const uint64_t number = graphs_.adopt(to, twin);
    const GraphTable::Node original = *graphs_.node(each);
    GraphTable::Node& copy = *graphs_.node(number);
    copy.stage = original.stage;
    copy.call = original.call;
    copy.allocation = original.allocation;
    graphs_.markSpecial(number);
    CUgraph child = nullptr;
    if (original.children.size() == 1 && driver_.cuGraphChildGraphNodeGetGraph(twin, &child) == CUDA_SUCCESS) {
      graphs_.adoptChild(number, child);
      copySpecials(original.children[0], graphs_.numberOf(child));
    }
  }
}

CUresult GraphClones::onGraphClone(const cmd::Decoded<cmd::GraphClone>& command) {
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (!nodeCount_.take(nodeCount_.of(command.fixed.graph))) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraph clone = nullptr;
  if (CUresult rc = driver_.cuGraphClone(&clone, graph->handle)) {
    nodeCount_.drop();
    return rc;
  }
  const uint64_t number = graphs_.adopt(clone);
  nodeCount_.keep(number);
  copySpecials(command.fixed.graph, number);
  reply(cmd::GraphCloneReply{number});
  return CUDA_SUCCESS;
}

CUresult GraphClones::onGraphFindInClone(const cmd::Decoded<cmd::GraphFindInClone>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  const GraphTable::Graph* clone = graphs_.graph(command.fixed.clone);
  if (!node || !clone) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode found = nullptr;
  if (CUresult rc = driver_.cuGraphNodeFindInClone(&found, node->handle, clone->handle)) return rc;
  reply(cmd::GraphFindInCloneReply{graphs_.adopt(command.fixed.clone, found)});
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
