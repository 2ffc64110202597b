// SPDX-License-Identifier: Apache-2.0
#include "cupti/external_ids.h"

namespace millpond::profiler {

Result ExternalIds::push(uint32_t kind, uint64_t id) {
  if (kind == 0 || kind >= kKinds) return kInvalidParameter;
  stacks_[kind].push_back(id);
  return kSuccess;
}

Result ExternalIds::pop(uint32_t kind, uint64_t* last) {
  if (kind == 0 || kind >= kKinds) return kInvalidParameter;
  if (stacks_[kind].empty()) return kQueueEmpty;
  if (last) *last = stacks_[kind].back();
  stacks_[kind].pop_back();
  return kSuccess;
}

std::vector<ExternalId> ExternalIds::top() const {
  std::vector<ExternalId> ids;
  for (uint32_t kind = 1; kind < kKinds; ++kind)
    if (!stacks_[kind].empty()) ids.push_back({kind, stacks_[kind].back()});
  return ids;
}

}  // namespace millpond::profiler
