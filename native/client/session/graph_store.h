// SPDX-License-Identifier: Apache-2.0
// What this process keeps of graphs: what launches have to bring along, parameters that it has handed out, and where the
// copies of graphs may write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "cuda/graph_node.h"

namespace millpond::client {

struct ExecInfo {
  uint64_t flags = 0;          ///< that it was instantiated with
  uint32_t hostFunctions = 0;  ///< that one launch runs
  bool keepsMemory = false;    ///< a launch leaves memory, without whose end the driver refuses another one
  std::vector<graph::Source> sources;
};

/// Memory behind the pointers that Get calls hand out: the driver's lives as long as the node, or until it is given other
/// parameters.
struct HandedOut {
  uint64_t root = 0;  ///< the graph that the node ends with
  std::vector<std::byte> bytes;
  std::vector<void*> pointers;
};

class GraphStore {
 public:
  void setExec(uint64_t exec, ExecInfo info) {
    const std::lock_guard lock(mutex_);
    execs_[exec] = std::make_unique<const ExecInfo>(std::move(info));  // make_shared needs type information
  }
  /// Null when there is no such executable graph.
  std::shared_ptr<const ExecInfo> exec(uint64_t exec) const {
    const std::shared_lock lock(mutex_);
    const auto found = execs_.find(exec);
    return found == execs_.end() ? nullptr : found->second;
  }
  bool dropExec(uint64_t exec) {
    const std::lock_guard lock(mutex_);
    return execs_.erase(exec) != 0;
  }

  HandedOut& keep(uint64_t node, std::unique_ptr<HandedOut> handedOut) {
    const std::lock_guard lock(mutex_);
    auto& kept = handedOut_[node];
    kept = std::move(handedOut);
    return *kept;
  }
  void dropNode(uint64_t node) {
    const std::lock_guard lock(mutex_);
    handedOut_.erase(node);
  }
  void dropGraph(uint64_t root) {
    const std::lock_guard lock(mutex_);
    std::erase_if(handedOut_, [&](const auto& each) { return each.second->root == root; });
  }

  /// From here on copies of graphs may write there.
  void allowLanding(uint64_t address, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto [zone, added] = zones_.try_emplace(address, bytes);
    if (!added && zone->second < bytes) zone->second = bytes;
    uint64_t end = zone->first + zone->second;
    // Zones that touch become one, so that a few remain however many copies there are.
    if (zone != zones_.begin())
      if (const auto before = std::prev(zone); before->first + before->second >= zone->first) {
        end = std::max(end, before->first + before->second);
        zones_.erase(zone);
        zone = before;
      }
    for (auto next = std::next(zone); next != zones_.end() && next->first <= end; next = zones_.erase(next))
      end = std::max(end, next->first + next->second);
    zone->second = end - zone->first;
  }
  /// Whether copies of graphs may write to any of it.
  bool mayLandIn(uint64_t address, uint64_t bytes) const {
    const std::shared_lock lock(mutex_);
    const auto next = zones_.lower_bound(address + bytes);
    return next != zones_.begin() && std::prev(next)->first + std::prev(next)->second > address;
  }
  bool mayLand(uint64_t address, uint64_t bytes) const {
    const std::shared_lock lock(mutex_);
    auto next = zones_.upper_bound(address);
    if (next == zones_.begin()) return false;
    const auto& [begin, size] = *std::prev(next);
    return address - begin <= size && bytes <= size - (address - begin);
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const ExecInfo>> execs_;
  std::unordered_map<uint64_t, std::unique_ptr<HandedOut>> handedOut_;
  std::map<uint64_t, uint64_t> zones_;  ///< address → bytes
};

}  // namespace millpond::client
