// SPDX-License-Identifier: Apache-2.0
// The memory of each device that the session may take, together with the other sessions of its claim.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>

#include "base/result.h"
#include "worker/claim/claim_budget.h"
#include "worker/core/session_core.h"

namespace millpond::worker {

class Budgets {
 public:
  explicit Budgets(SessionCore& session);

  std::deque<ClaimBudget>& all() { return all_; }
  ClaimBudget& at(size_t device) { return all_[device]; }
  /// Counts in files of that directory from now on, with the other sessions of the claim. `revision`: of the sizes.
  Status enter(const std::string& directory, uint64_t revision);
  /// Changes the limits of all devices, or of none if all sessions of the claim together use more on one of them.
  /// `revision` grows with every change. May be called on any thread.
  Status setLimits(std::span<const uint64_t> bytes, uint64_t revision);
  /// The session is over.
  void rest();
  /// Sets the session's counters to its use of one device, or of all.
  void publish(size_t device);
  void publish();

 private:
  SessionCore& session_;
  std::deque<ClaimBudget> all_;
  std::mutex mutex_;  ///< while limits change
  uint64_t revision_ = 0;
};

}  // namespace millpond::worker
