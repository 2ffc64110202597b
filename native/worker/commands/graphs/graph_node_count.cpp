// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_node_count.h"

#include <algorithm>
#include <cstring>

namespace millpond::worker {
namespace {

/// Owners of nodes that belong to no graph yet: nodes that the driver is about to create, and nodes of open captures.
constexpr uint64_t kNodesInTheMaking = 0;
constexpr uint64_t kNodesCaptured = 1;
/// Host memory of nodes is charged in steps of this size.
constexpr uint64_t kHostStep = uint64_t{1} << 20;
constexpr uint64_t kMostParameterBytes = uint64_t{36} << 10;
/// Host memory of an entry of `largest_`.
constexpr uint64_t kLargestBytes = 80;

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

GraphNodes GraphNodeCount::of(uint64_t graph) const {
  const auto found = nodes_.find(ownerOf(graph));
  return found == nodes_.end() ? GraphNodes{} : found->second;
}

bool GraphNodeCount::charge(uint64_t bytes) {
  if (bytes > UINT64_MAX - bytes_ - kHostStep) return false;
  if (!host_.set((bytes_ + bytes + kHostStep - 1) / kHostStep * kHostStep)) return false;
  bytes_ += bytes;
  return true;
}

void GraphNodeCount::release(GraphNodes nodes) {
  counts_.give(Thing::kGraphNode, nodes.nodes);
  bytes_ -= nodes.bytes;
  host_.set((bytes_ + kHostStep - 1) / kHostStep * kHostStep);
}

bool GraphNodeCount::take(GraphNodes nodes) {
  if (!counts_.take(Thing::kGraphNode, nodes.nodes)) return false;
  if (!charge(nodes.bytes)) {
    counts_.give(Thing::kGraphNode, nodes.nodes);
    return false;
  }
  nodes_[kNodesInTheMaking] += nodes;
  return true;
}

bool GraphNodeCount::grow(uint64_t owner, uint64_t node, uint64_t parameterBytes) {
  const auto [known, isNew] = largest_.try_emplace({ownerOf(owner), node}, 0);
  if (parameterBytes <= known->second) return true;
  const uint64_t more = parameterBytes - known->second + (isNew ? kLargestBytes : 0);
  if (!charge(more)) {
    if (isNew) largest_.erase(known);
    return false;
  }
  known->second = parameterBytes;
  nodes_[ownerOf(owner)] += {0, more};
  return true;
}

void GraphNodeCount::keep(uint64_t owner) {
  if (const auto made = nodes_.extract(kNodesInTheMaking)) nodes_[owner] += made.mapped();
}

void GraphNodeCount::give(uint64_t owner) {
  if (const auto gone = nodes_.extract(owner)) release(gone.mapped());
  largest_.erase(largest_.lower_bound({owner, 0}), largest_.upper_bound({owner, UINT64_MAX}));
}

void GraphNodeCount::drop() { give(kNodesInTheMaking); }

void GraphNodeCount::move(uint64_t from, uint64_t to) {
  if (const auto moved = nodes_.extract(from)) nodes_[to] += moved.mapped();
  for (auto each = largest_.lower_bound({from, 0}); each != largest_.end() && each->first.first == from;) {
    largest_[{to, each->first.second}] = each->second;
    each = largest_.erase(each);
  }
}

bool GraphNodeCount::admitCaptured(cmd::Op op, std::span<const std::byte> head, uint64_t bytes) {
  if (!becomesNode(op)) return true;
  // Data of copies is not among the parameters.
  GraphNodes nodes = GraphNodes::one(std::min(bytes, kMostParameterBytes));
  // A launched graph becomes a child, with all its nodes.
  if (op == cmd::Op::kGraphLaunch && head.size() >= sizeof(cmd::GraphLaunch)) {
    cmd::GraphLaunch launch{};
    std::memcpy(&launch, head.data(), sizeof launch);
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
