// SPDX-License-Identifier: Apache-2.0
#include "worker/core/budgets.h"

#include <algorithm>
#include <vector>

#include "base/size_text.h"

namespace millpond::worker {

Budgets::Budgets(SessionCore& session) : session_(session) {
  for (const auto& device : session.devices().all()) all_.emplace_back(device.share.memoryBytes);
}

Status Budgets::enter(const std::string& directory, uint64_t revision) {
  const std::lock_guard lock(mutex_);
  revision_ = std::max(revision_, revision);
  for (size_t i = 0; i < all_.size(); ++i)
    if (auto entered = all_[i].enter(directory + "/" + session_.devices().all()[i].share.uuid, revision_); !entered)
      return entered;
  return Done{};
}

Status Budgets::setLimits(std::span<const uint64_t> bytes, uint64_t revision) {
  const std::lock_guard lock(mutex_);
  if (bytes.size() != all_.size()) return Error{"the session has another number of devices"};
  revision_ = revision;
  std::vector<uint64_t> before;
  for (const ClaimBudget& budget : all_) before.push_back(budget.limitBytes());
  // Lowers limits first: only that can be refused, and a lowered limit can always be raised again.
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] >= before[i] || all_[i].setLimit(bytes[i], revision)) continue;
    const uint64_t used = all_[i].usedBytes();
    for (size_t done = 0; done < i; ++done)
      if (bytes[done] < before[done]) all_[done].setLimit(before[done], revision);
    return Error{"its programs have " + sizeText(used, Rounding::kUp) + " in use on device " + std::to_string(i) +
                 ", more than the " + sizeText(bytes[i]) + " that were to be left"};
  }
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] >= before[i]) all_[i].setLimit(bytes[i], revision);
  return Done{};
}

void Budgets::rest() {
  for (ClaimBudget& budget : all_) budget.rest();
}

void Budgets::publish(size_t device) {
  session_.counters().memoryUsed[device].store(all_[device].ownBytes(), std::memory_order_relaxed);
}

void Budgets::publish() {
  for (size_t device = 0; device < all_.size(); ++device) publish(device);
}

}  // namespace millpond::worker
