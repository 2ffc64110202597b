// SPDX-License-Identifier: Apache-2.0
// The values of a graph's conditions while it runs.
#pragma once

#include <atomic>
#include <unordered_map>

#include "softgpu/driver/graphs/graph.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

/// The values of one launch. A handle that does not belong to the launched graph, or to a graph in it, changes nothing
/// and reads as 0.
class ConditionValues : public ptx::Conditions {
 public:
  explicit ConditionValues(const Graph& graph);

  void set(uint64_t handle, uint32_t value) override;
  uint32_t of(CUgraphConditionalHandle handle) const;

 private:
  std::unordered_map<CUgraphConditionalHandle, std::atomic<uint32_t>> values_;  // never added to or removed from
};

}  // namespace millpond::softgpu
