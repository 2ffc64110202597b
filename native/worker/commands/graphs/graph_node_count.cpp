// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_node_count.h"

#include <cstring>

namespace millpond::worker {
namespace {

/// Owners of nodes that belong to no graph yet: nodes that the driver is about to create, and nodes of open captures.
constexpr uint64_t kNodesInTheMaking = 0;
constexpr uint64_t kNodesCaptured = 1;

/// Whether a command becomes a node where its stream is captured.
bool becomesNode(cmd::Op op) {
  if (op >= cmd::Op::kMemcpyDtoDAsyncV2 && op <= cmd::Op::kMemsetD8V2) return true;
  switch (op) {
    case cmd::Op::kCaptureCopy:
    case cmd::Op::kContextRecordEvent:
    case cmd::Op::kCopyBox:
    case cmd::Op::kCopyFromDevice:
    case cmd::Op::kCopyFromLanding:
    case cmd::Op::kCopyHostShared:
    case cmd::Op::kCopyToDevice:
    case cmd::Op::kEventRecord:
    case cmd::Op::kEventRecordWithFlags:
    case cmd::Op::kGraphLaunch:
    case cmd::Op::kHostFunction:
    case cmd::Op::kLandFromDevice:
    case cmd::Op::kLaunch:
    case cmd::Op::kPoolAlloc:
    case cmd::Op::kPoolFree:
    case cmd::Op::kMemFree:
    case cmd::Op::kStreamBatchMemOpV2:
    case cmd::Op::kStreamWaitEvent:
    case cmd::Op::kStreamWaitValue32V2:
    case cmd::Op::kStreamWaitValue64V2:
    case cmd::Op::kStreamWriteValue32V2:
    case cmd::Op::kStreamWriteValue64V2: return true;
    default: return false;
  }
}

}  // namespace

uint64_t GraphNodeCount::of(uint64_t graph) const {
  const auto found = nodes_.find(ownerOf(graph));
  return found == nodes_.end() ? 0 : found->second;
}

bool GraphNodeCount::take(uint64_t nodes) {
  if (!counts_.take(Thing::kGraphNode, nodes)) return false;
  nodes_[kNodesInTheMaking] += nodes;
  return true;
}

void GraphNodeCount::keep(uint64_t owner) {
  if (const auto made = nodes_.extract(kNodesInTheMaking)) nodes_[owner] += made.mapped();
}

void GraphNodeCount::give(uint64_t owner) {
  if (const auto gone = nodes_.extract(owner)) counts_.give(Thing::kGraphNode, gone.mapped());
}

void GraphNodeCount::drop() { give(kNodesInTheMaking); }

void GraphNodeCount::move(uint64_t from, uint64_t to) {
  if (const auto moved = nodes_.extract(from)) nodes_[to] += moved.mapped();
}

bool GraphNodeCount::admitCaptured(cmd::Op op, std::span<const std::byte> body) {
  if (!becomesNode(op)) return true;
  uint64_t nodes = 1;
  // A launched graph becomes a child, with all of its nodes.
  if (op == cmd::Op::kGraphLaunch && body.size() >= sizeof(cmd::GraphLaunch)) {
    cmd::GraphLaunch launch{};
    std::memcpy(&launch, body.data(), sizeof launch);
    nodes += of(launch.exec);
  }
  if (!take(nodes)) return false;
  keep(kNodesCaptured);
  return true;
}

void GraphNodeCount::dropCaptured() { give(kNodesCaptured); }

void GraphNodeCount::keepCaptured(uint64_t graph) {
  if (const auto made = nodes_.extract(kNodesCaptured)) nodes_[ownerOf(graph)] += made.mapped();
}

}  // namespace millpond::worker
