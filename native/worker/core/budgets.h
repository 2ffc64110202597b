// SPDX-License-Identifier: Apache-2.0
// The memory of each device that the session may take, together with the other sessions of its claim.
#pragma once

#include <cstddef>
#include <deque>

#include "worker/claim/claim_budget.h"
#include "worker/core/session_core.h"

namespace millpond::worker {

class Budgets {
 public:
  Budgets(SessionCore& session, std::deque<ClaimBudget>& all) : session_(session), all_(all) {}

  std::deque<ClaimBudget>& all() { return all_; }
  ClaimBudget& at(size_t device) { return all_[device]; }
  /// Sets the session's counters to its use of one device, or of all.
  void publish(size_t device);
  void publish();

 private:
  SessionCore& session_;
  std::deque<ClaimBudget>& all_;
};

}  // namespace millpond::worker
