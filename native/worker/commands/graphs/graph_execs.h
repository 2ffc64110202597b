// SPDX-License-Identifier: Apache-2.0
// Executable graphs: instantiation, updates and launches.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "worker/commands/copies/landings.h"
#include "worker/commands/graphs/graph_contents.h"
#include "worker/commands/graphs/graph_memory.h"
#include "worker/commands/graphs/graph_node_count.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/commands/memory/charges.h"
#include "worker/commands/memory/host_memory.h"
#include "worker/commands/modules/functions.h"
#include "worker/core/budgets.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class GraphExecs : private SessionPart {
 public:
  struct Exec {
    CUgraphExec handle = nullptr;
    std::shared_ptr<const ExecContents> contents;
  };

  GraphExecs(SessionCore& session, std::shared_ptr<Callbacks> callbacks, Budgets& budgets, Charges& charges,
             HostMemory& hostMemory, Functions& functions, FunctionOrder& order, GraphTable& graphs,
             GraphNodeCount& nodeCount, GraphMemory& graphMemory, GraphContents& contents, Landings& landings)
      : SessionPart(session),
        callbacks_(std::move(callbacks)),
        budgets_(budgets),
        charges_(charges),
        hostMemory_(hostMemory),
        functions_(functions),
        order_(order),
        graphs_(graphs),
        nodeCount_(nodeCount),
        graphMemory_(graphMemory),
        contents_(contents),
        landings_(landings) {}

  CUresult onGraphExecDestroy(const cmd::Decoded<cmd::GraphExecDestroy>& command);
  CUresult onGraphExecUpdate(const cmd::Decoded<cmd::GraphExecUpdate>& command);
  CUresult onGraphInstantiate(const cmd::Decoded<cmd::GraphInstantiate>& command);
  CUresult onGraphLaunch(const cmd::Decoded<cmd::GraphLaunch>& command);
  CUresult onGraphSources(const cmd::Decoded<cmd::GraphSources>& command);
  CUresult onGraphUpload(const cmd::Decoded<cmd::GraphUpload>& command);

  bool empty() const { return all_.empty(); }
  /// Null if there is none of that number.
  Exec* find(uint64_t number) {
    const auto found = all_.find(number);
    return found == all_.end() ? nullptr : &found->second;
  }

 private:
  CUresult launch(const cmd::GraphLaunch& launch);

  const std::shared_ptr<Callbacks> callbacks_;
  Budgets& budgets_;
  Charges& charges_;
  HostMemory& hostMemory_;
  Functions& functions_;
  FunctionOrder& order_;
  GraphTable& graphs_;
  GraphNodeCount& nodeCount_;
  GraphMemory& graphMemory_;
  GraphContents& contents_;
  Landings& landings_;
  std::unordered_map<uint64_t, Exec> all_;
};

}  // namespace millpond::worker
