// SPDX-License-Identifier: Apache-2.0
// Memory allocated by graph nodes: the part that belongs to the session, and the memory that launches have left
// allocated.
#pragma once

#include <map>
#include <memory>

#include "worker/commands/graphs/graph_table.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class GraphMemory : private SessionPart {
 public:
  explicit GraphMemory(SessionCore& session) : SessionPart(session) {}

  /// By address; ended allocations included.
  const std::map<CUdeviceptr, std::weak_ptr<GraphAllocation>>& all() const { return all_; }
  /// Whether graph nodes allocate memory at that address.
  bool contains(CUdeviceptr address) const {
    const auto found = all_.find(address);
    return found != all_.end() && !found->second.expired();
  }
  /// The driver has created the node of that allocation: its memory is known from now on.
  void add(const std::shared_ptr<GraphAllocation>& allocation) {
    std::erase_if(all_, [](const auto& each) { return each.second.expired(); });
    all_[allocation->address] = allocation;
  }
  /// A node frees that memory.
  void willFree(CUdeviceptr address) {
    const auto found = all_.find(address);
    if (found == all_.end()) return;
    if (const auto allocation = found->second.lock()) allocation->isFreedByGraph = true;
  }
  /// A launch leaves that memory allocated, so it counts even if its node no longer exists.
  void leave(const std::shared_ptr<GraphAllocation>& allocation) { left_[allocation->address] = allocation; }
  /// Frees memory that a launch left, if it did, in stream order or immediately.
  CUresult free(CUdeviceptr address, const Stream* stream) {
    CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
    if (stream) rc = driver_.cuMemFreeAsync(address, stream->handle);
    // A driver without pools has no stream-ordered free.
    if (rc == CUDA_ERROR_NOT_SUPPORTED) rc = driver_.cuMemFree_v2(address);
    if (!rc) left_.erase(address);
    return rc;
  }

 private:
  std::map<CUdeviceptr, std::weak_ptr<GraphAllocation>> all_;
  std::map<CUdeviceptr, std::shared_ptr<GraphAllocation>> left_;
};

}  // namespace millpond::worker
