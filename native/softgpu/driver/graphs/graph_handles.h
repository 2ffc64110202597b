// SPDX-License-Identifier: Apache-2.0
// What the handles of graphs stand for.
#pragma once

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/handle_table.h"

namespace millpond::softgpu {

class Graph;
class GraphExec;
class UserObject;
struct GraphNode;

struct GraphHandles {
  /// The only instance in the process. It is never destroyed: the driver's threads may run until the process ends.
  static GraphHandles& instance();

  HandleTable<Graph, CUgraph> graphs;
  HandleTable<GraphNode, CUgraphNode> nodes;
  HandleTable<GraphExec, CUgraphExec> executables;
  HandleTable<UserObject, CUuserObject> userObjects;
};

}  // namespace millpond::softgpu
