// SPDX-License-Identifier: Apache-2.0
// Counts of objects that cost a node more than device memory, for all sessions of a claim together, and their limits.
// As with ClaimBudget, each session writes its counts into its own slot of a mapped file, and sums are never stored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "worker/claim/claim_budget.h"

namespace millpond::worker {

enum class Thing : uint8_t { kContext, kStream, kEvent, kGraphNode, kHostByte, kImageByte };
inline constexpr size_t kThings = 6;

/// Limits of a claim on a node; for host memory, half of the host's.
struct ThingLimits {
  std::array<uint64_t, kThings> most;

  static ThingLimits ofHost();
  uint64_t of(Thing thing) const { return most[static_cast<size_t>(thing)]; }
};

class ClaimThings {
 public:
  /// Counts for this session alone, until it enters a shared file.
  explicit ClaimThings(ThingLimits limits = ThingLimits::ofHost()) : limits_(limits) {}
  ~ClaimThings();
  ClaimThings(const ClaimThings&) = delete;
  ClaimThings& operator=(const ClaimThings&) = delete;

  /// Counts in that file from now on. Call it on a thread that lives as long as the session, because other sessions
  /// detect its end.
  Status enter(const std::string& path);
  /// The session is over, and its process is about to end; its objects count until then. Call it on the thread that
  /// entered.
  void rest();

  /// Sets this session's count. Returns false, and changes nothing, if that is an increase and all sessions together
  /// would exceed the limit.
  bool hold(Thing thing, uint64_t amount);
  /// Held by all sessions of the claim.
  uint64_t total(Thing thing);
  /// Whether objects of a session that is over will be returned when its process ends.
  bool awaitsEnd();
  uint64_t held(Thing thing) const { return own_[static_cast<size_t>(thing)]; }
  const ThingLimits& limits() const { return limits_; }

 private:
  struct Content;
  struct Lock;

  uint64_t others(Thing thing) const;
  /// Clears the slots of workers that have ended.
  void sweep();

  const ThingLimits limits_;
  std::array<uint64_t, kThings> own_{};
  Content* content_ = nullptr;
  uint32_t seat_ = 0;
  bool isAtRest_ = false;
};

}  // namespace millpond::worker
