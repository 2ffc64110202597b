// SPDX-License-Identifier: Apache-2.0
// The accounts of a claim that a session enters when it is assigned: a budget of each of its devices, and counts of objects.
// The contexts that its worker makes are charged there before the driver makes them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/claim/claim_budget.h"
#include "worker/claim/claim_place.h"
#include "worker/claim/claim_things.h"

namespace millpond::worker {

/// A session's part of a device.
struct DeviceAccount {
  std::string uuid;
  uint64_t memoryBytes = 0;   ///< limit of the claim
  uint64_t contextBytes = 0;  ///< see ClaimBudget
};

/// How long a session waits for memory of another one, whose program may just have ended.
struct ContextPatience {
  int64_t serving = 500'000'000;   ///< while all others seem to serve their programs, in nanoseconds
  int64_t ending = 8'000'000'000;  ///< while one of them is over, and its process is about to end
};

class ClaimAccounts {
 public:
  ClaimAccounts(ClaimPlace place, std::vector<DeviceAccount> devices);
  ClaimAccounts(const ClaimAccounts&) = delete;
  ClaimAccounts& operator=(const ClaimAccounts&) = delete;

  /// Joins the accounts of the claim's other sessions, if there are any, and charges a context of each device and the
  /// session's own host memory. Call it, and `rest`, on one thread that lives as long as the session, because other
  /// sessions detect its end. `beforeWaiting`: called before the first wait for memory of another session; until the
  /// charge is made, the session may hold no memory of the device.
  Status enter(ContextPatience patience = {}, const std::function<void()>& beforeWaiting = nullptr);
  /// Whether `enter` failed because the claim has no room for another session.
  bool isFull() const { return isFull_; }
  /// The session is over, and its process is about to end; its memory and objects count until then.
  void rest();

  const ClaimPlace& place() const { return place_; }
  std::deque<ClaimBudget>& budgets() { return budgets_; }
  ClaimThings& things() { return things_; }
  /// Changes the limits of all devices, or of none if all sessions of the claim together use more on one of them.
  /// `revision` grows with every change. May be called on any thread.
  Status setLimits(std::span<const uint64_t> bytes, uint64_t revision);
  /// The part of the session's context on that device that counts towards the claim's limit.
  uint64_t contextInLimit(size_t device) const { return budgets_[device].contextInLimit(); }

 private:
  /// How a charge waits for memory of other sessions.
  struct Waiting {
    ContextPatience patience;
    const std::function<void()>& before;
  };

  Status takeContext(size_t device, const Waiting& waiting);
  Status takeHostMemory(const Waiting& waiting);
  template <typename Take, typename AwaitsEnd>
  static bool takePatiently(const Waiting& waiting, Take take, AwaitsEnd awaitsEnd);

  const ClaimPlace place_;
  const std::vector<DeviceAccount> devices_;
  std::deque<ClaimBudget> budgets_;
  ClaimThings things_;
  std::mutex mutex_;  ///< while limits change
  bool isFull_ = false;
};

}  // namespace millpond::worker
