// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/graphs/condition_values.h"

namespace millpond::softgpu {

ConditionValues::ConditionValues(const Graph& graph) {
  for (const Condition& each : ConditionsOf(graph).all) values_[each.handle] = each.startsInitial ? each.initial : 0;
}

void ConditionValues::set(uint64_t handle, uint32_t value) {
  const auto found = values_.find(handle);
  if (found != values_.end()) found->second = value;
}

uint32_t ConditionValues::of(CUgraphConditionalHandle handle) const {
  const auto found = values_.find(handle);
  return found == values_.end() ? 0 : found->second.load();
}

}  // namespace millpond::softgpu
