// SPDX-License-Identifier: Apache-2.0
// This process's state of graphs: data that launches must send, returned parameters, and the memory that copies of
// graphs may read and write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "client/state/zones.h"
#include "cuda/gen/cuda_api.h"
#include "cuda/graph_node.h"

namespace millpond::client {

struct ExecInfo {
  uint64_t flags = 0;          ///< flags of its instantiation
  uint32_t hostFunctions = 0;  ///< number of functions that one launch runs
  uint32_t hostCopies = 0;     ///< how many of them copy between memory of this process
  bool keepsMemory = false;  ///< a launch leaves memory allocated: the driver refuses another launch before it is freed
  std::vector<graph::Source> sources;
};

/// Memory behind the pointers that Get calls return: like the driver's, it lives as long as the node, or until the node
/// gets other parameters.
struct HandedOut {
  uint64_t root = 0;  ///< the graph with which the node ends
  std::vector<std::byte> bytes;
  std::vector<void*> pointers;
};

/// The properties that determine whether an executable graph accepts other parameters of a kernel.
struct KernelUpdate {
  uint64_t function = 0;
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t sharedBytes = 0;

  static KernelUpdate of(const graph::NodeRecord& node) {
    const auto& [function, grid, block, shared, reserved] = node.kernel;
    return {function, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared};
  }
  bool operator==(const KernelUpdate&) const = default;
};

class GraphStore {
 public:
  /// A copy between memory of this process, which a graph's launches perform as a host function. It is never freed,
  /// because any graph may contain a clone of its node.
  const CUDA_MEMCPY3D& hostCopy(const CUDA_MEMCPY3D& copy) {
    const std::lock_guard lock(mutex_);
    return *hostCopies_.insert(copy).first;
  }
  /// The copy at that address; null: there is none.
  const CUDA_MEMCPY3D* findHostCopy(uint64_t address) const {
    const std::shared_lock lock(mutex_);
    for (const CUDA_MEMCPY3D& each : hostCopies_)
      if (reinterpret_cast<uint64_t>(&each) == address) return &each;
    return nullptr;
  }
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
    accepted_.erase(exec);
    return execs_.erase(exec) != 0;
  }
  /// The driver has accepted these parameters of a kernel's node: similar ones need no answer.
  void accept(uint64_t exec, uint64_t node, const KernelUpdate& update) {
    const std::lock_guard lock(mutex_);
    accepted_[exec][node] = update;
  }
  bool isAccepted(uint64_t exec, uint64_t node, const KernelUpdate& update) const {
    const std::shared_lock lock(mutex_);
    const auto nodes = accepted_.find(exec);
    if (nodes == accepted_.end()) return false;
    const auto known = nodes->second.find(node);
    return known != nodes->second.end() && known->second == update;
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

  /// From now on copies of graphs may write there.
  void allowLanding(uint64_t address, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    landings_.add(address, bytes);
  }
  /// Whether copies of graphs may write to any of it.
  bool mayLandIn(uint64_t address, uint64_t bytes) const {
    const std::shared_lock lock(mutex_);
    return landings_.meets(address, bytes);
  }
  bool mayLand(uint64_t address, uint64_t bytes) const {
    const std::shared_lock lock(mutex_);
    return landings_.has(address, bytes);
  }
  /// From now on copies of graphs may read there.
  void allowReading(uint64_t address, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    readings_.add(address, bytes);
  }
  /// Whether a worker may map this memory of the process for its graphs, or write there for them.
  bool mayUse(const graph::Source& source) const {
    const std::shared_lock lock(mutex_);
    return (source.number == 0 ? landings_ : readings_).has(source.address, source.bytes);
  }
  /// The program's pending functions may still write this source of a launch.
  void addLate(const graph::Source& source) {
    const std::lock_guard lock(mutex_);
    const auto isSame = [&](const graph::Source& each) {
      return each.number == source.number && each.address == source.address && each.bytes == source.bytes;
    };
    if (std::none_of(late_.begin(), late_.end(), isSame)) late_.push_back(source);
  }
  std::vector<graph::Source> late() const {
    const std::shared_lock lock(mutex_);
    return late_;
  }
  /// No function is pending.
  void endLate() {
    const std::lock_guard lock(mutex_);
    late_.clear();
  }

 private:
  struct ByBytes {
    bool operator()(const CUDA_MEMCPY3D& a, const CUDA_MEMCPY3D& b) const { return std::memcmp(&a, &b, sizeof a) < 0; }
  };

  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const ExecInfo>> execs_;
  std::unordered_map<uint64_t, std::unique_ptr<HandedOut>> handedOut_;
  std::unordered_map<uint64_t, std::unordered_map<uint64_t, KernelUpdate>> accepted_;  ///< by executable graph and node
  std::set<CUDA_MEMCPY3D, ByBytes> hostCopies_;
  Zones landings_;
  Zones readings_;
  std::vector<graph::Source> late_;
};

}  // namespace millpond::client
