// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/claim_accounts.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/size_text.h"
#include "protocol/futex.h"

namespace millpond::worker {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};

}  // namespace

/// Repeats `take` until it succeeds. If a session of the claim is over but its process has not ended, that takes until
/// the process ends; otherwise another session must release something. False if patience has run out.
template <typename Take, typename AwaitsEnd>
bool ClaimAccounts::takePatiently(const Waiting& waiting, Take take, AwaitsEnd awaitsEnd) {
  if (take()) return true;
  if (waiting.before) waiting.before();
  const int64_t began = monotonicNs();
  while (!take()) {
    if (monotonicNs() - began > (awaitsEnd() ? waiting.patience.ending : waiting.patience.serving)) return false;
    std::this_thread::sleep_for(kLookAgain);
  }
  return true;
}

ClaimAccounts::ClaimAccounts(ClaimPlace place, std::vector<DeviceAccount> devices)
    : place_(std::move(place)), devices_(std::move(devices)), things_(place_.limits) {
  for (const DeviceAccount& device : devices_) budgets_.emplace_back(device.memoryBytes, device.contextBytes);
}

Status ClaimAccounts::enter(ContextPatience patience, const std::function<void()>& beforeWaiting) {
  if (!place_.directory.empty()) {
    for (size_t i = 0; i < budgets_.size(); ++i)
      if (auto entered = budgets_[i].enter(place_.directory + "/" + devices_[i].uuid, place_.sizeRevision); !entered)
        return entered;
    if (auto entered = things_.enter(place_.directory + "/things"); !entered) return entered;
  }
  const Waiting waiting{patience, beforeWaiting};
  for (size_t i = 0; i < budgets_.size(); ++i)
    if (auto taken = takeContext(i, waiting); !taken) return taken;
  return takeHostMemory(waiting);
}

Status ClaimAccounts::takeHostMemory(const Waiting& waiting) {
  const auto take = [&] { return things_.hold(Thing::kHostByte, place_.sessionHostBytes); };
  if (takePatiently(waiting, take, [&] { return things_.awaitsEnd(); })) return Done{};
  isFull_ = true;
  return Error{"a session needs " + sizeText(place_.sessionHostBytes, Rounding::kUp) +
               " of host memory, and the others of the claim have " +
               sizeText(things_.total(Thing::kHostByte), Rounding::kUp) + " of the " +
               sizeText(place_.limits.of(Thing::kHostByte)) + " that it may have on this node"};
}

Status ClaimAccounts::takeContext(size_t device, const Waiting& waiting) {
  ClaimBudget& budget = budgets_[device];
  if (takePatiently(
          waiting, [&] { return budget.takeContext(); }, [&] { return budget.awaitsEnd(); }))
    return Done{};
  isFull_ = true;
  const uint32_t others = budget.sessions() - 1;
  return Error{"the driver needs " + sizeText(devices_[device].contextBytes, Rounding::kUp) + " of device " +
               devices_[device].uuid + " for one more, and of the claim's " + sizeText(budget.limitBytes()) +
               " there " + (others == 1 ? "is" : "are") + " " + sizeText(budget.left()) + " left beside " +
               std::to_string(others) + (others == 1 ? " session" : " sessions")};
}

void ClaimAccounts::rest() {
  for (ClaimBudget& budget : budgets_) budget.rest();
  things_.rest();
}

Status ClaimAccounts::setLimits(std::span<const uint64_t> bytes, uint64_t revision) {
  const std::lock_guard lock(mutex_);
  if (bytes.size() != budgets_.size()) return Error{"the session has a different number of devices"};
  std::vector<uint64_t> before;
  for (const ClaimBudget& budget : budgets_) before.push_back(budget.limitBytes());
  // Lowers limits first: only lowering can be refused, and a lowered limit can always be raised again.
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] >= before[i] || budgets_[i].setLimit(bytes[i], revision)) continue;
    const uint64_t used = budgets_[i].usedBytes();
    for (size_t done = 0; done < i; ++done)
      if (bytes[done] < before[done]) budgets_[done].setLimit(before[done], revision);
    return Error{"its programs have " + sizeText(used, Rounding::kUp) + " in use on device " + std::to_string(i) +
                 ", more than the new limit of " + sizeText(bytes[i])};
  }
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] >= before[i]) budgets_[i].setLimit(bytes[i], revision);
  return Done{};
}

}  // namespace millpond::worker
