// SPDX-License-Identifier: Apache-2.0
// What all sessions of a claim have together of things that cost a node something beside device memory, and how many they
// may have. As with ClaimBudget, each session writes what it has at a seat of its own in a file that they map, and sums are
// never stored.
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

/// How many of each a claim may have on a node; of bytes of pinned host memory half of what the host has.
struct ThingLimits {
  std::array<uint64_t, kThings> most;

  static ThingLimits ofHost();
  uint64_t of(Thing thing) const { return most[static_cast<size_t>(thing)]; }
};

class ClaimThings {
 public:
  /// Of a session that shares its limits with none, until it enters where others are.
  explicit ClaimThings(ThingLimits limits = ThingLimits::ofHost()) : limits_(limits) {}
  ~ClaimThings();
  ClaimThings(const ClaimThings&) = delete;
  ClaimThings& operator=(const ClaimThings&) = delete;

  /// Counts in that file from here on. By the thread that lives as long as the session: its end is seen by the others.
  Status enter(const std::string& path);
  /// The session is over, and its process about to end; what it has counts until then. By the thread that entered.
  void rest();

  /// This session has so many from here on. False, and nothing changed, where these are more than it had and all
  /// sessions together would have too many.
  bool hold(Thing thing, uint64_t amount);
  uint64_t held(Thing thing) const { return own_[static_cast<size_t>(thing)]; }
  const ThingLimits& limits() const { return limits_; }

 private:
  struct Content;
  struct Lock;

  uint64_t others(Thing thing) const;
  /// Empties the seats of workers that have ended.
  void sweep();

  const ThingLimits limits_;
  std::array<uint64_t, kThings> own_{};
  Content* content_ = nullptr;
  uint32_t seat_ = 0;
  bool isAtRest_ = false;
};

}  // namespace millpond::worker
