// SPDX-License-Identifier: Apache-2.0
// Reads the parameters of graph nodes from the wire. Every address, handle and function in them is checked to be of the
// session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/graph_node.h"
#include "worker/commands/graphs/graph_calls.h"
#include "worker/commands/graphs/graph_memory.h"
#include "worker/commands/graphs/graph_stages.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/commands/memory/memory_operations.h"
#include "worker/commands/modules/functions.h"
#include "worker/core/budgets.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"
#include "worker/parking/journal.h"

namespace millpond::worker {

/// A node's parameters for the driver, and the memory to which they point.
struct NodeParams {
  CUgraphNodeParams params{};
  std::vector<std::byte> bytes;
  std::vector<void*> pointers;
  std::vector<CUmemAccessDesc> access;
  std::vector<CUstreamBatchMemOpParams> operations;
  std::shared_ptr<GraphStage> stage;
  const HostCall* call = nullptr;
  std::shared_ptr<GraphAllocation> allocation;
};

class GraphNodeReader : private SessionPart {
 public:
  GraphNodeReader(SessionCore& session, Budgets& budgets, AddressGate& addresses, Functions& functions,
                  MemoryOperations& operations, GraphTable& graphs, GraphMemory& graphMemory, GraphCalls& calls,
                  GraphStages& stages, Journal& journal)
      : SessionPart(session),
        budgets_(budgets),
        addresses_(addresses),
        functions_(functions),
        operations_(operations),
        graphs_(graphs),
        graphMemory_(graphMemory),
        calls_(calls),
        stages_(stages),
        journal_(journal) {}

  CUresult read(std::span<const std::byte> bytes, NodeParams& out);
  /// Adopts the memory of an allocation node that the driver has created.
  void adoptAllocation(uint64_t node, const NodeParams& params);

 private:
  CUresult readAllocation(const graph::NodeRecord& record, std::span<const std::byte> rest, NodeParams& out);
  CUresult readArray(uint64_t wire, CUarray& out);
  CUresult readCopy(const graph::NodeRecord& record, NodeParams& out);
  CUresult readFill(const graph::NodeRecord& record, NodeParams& out);
  CUresult readKernel(const graph::NodeRecord& record, std::span<const std::byte> rest, NodeParams& out);

  Budgets& budgets_;
  AddressGate& addresses_;
  Functions& functions_;
  MemoryOperations& operations_;
  GraphTable& graphs_;
  GraphMemory& graphMemory_;
  GraphCalls& calls_;
  GraphStages& stages_;
  Journal& journal_;
};

}  // namespace millpond::worker
