// SPDX-License-Identifier: Apache-2.0
// How much memory of one device is taken by all sessions of a claim, and how much may be. The workers of these sessions
// map one file; each writes what it has taken at a seat of its own, and the sum is never stored, so that a worker that is
// killed at any instruction leaves a sum that is right: what it had is given back when its process, and with it the
// driver's memory, is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"

namespace millpond::worker {

/// Sessions of an allocation on a device, with those that are ending: the agent admits 16 for each of its 32 vGPUs, and
/// as many again that have not ended yet.
inline constexpr uint32_t kClaimSeats = 1024;
/// Pieces of memory that sessions of an allocation share at a time, on a device. Those beyond count for each that opens them.
inline constexpr uint32_t kClaimShared = 2048;
/// A worker that was killed has ended after so long, also where its process cannot be watched.
inline constexpr int64_t kWorkerEndsNs = 30'000'000'000;

class ClaimBudget {
 public:
  /// Memory that was taken.
  struct Charge {
    uint64_t bytes = 0;
    uint64_t shared = 0;  ///< number of memory that counts once for all sessions that have it open; 0: it is no such
  };

  /// Of a session that shares its budget with none, until it enters one.
  explicit ClaimBudget(uint64_t limitBytes);
  /// What was taken is given back.
  ~ClaimBudget();
  ClaimBudget(const ClaimBudget&) = delete;
  ClaimBudget& operator=(const ClaimBudget&) = delete;

  /// Shares the budget of that file from here on; nothing may have been taken. `revision`: of the limit, where a higher
  /// one replaces that in the file. By the thread that lives as long as the session: its end is seen by the others.
  Status enter(const std::string& path, uint64_t revision);
  /// The session is over, and its process about to end. What was taken counts until then. By the thread that entered.
  void rest();

  /// Nothing where that would be over the limit.
  std::optional<Charge> take(uint64_t bytes);
  void give(const Charge& charge);
  /// What was taken can be opened by other sessions from here on, by its number. Without one it counts for each of them.
  void share(Charge& charge);
  /// Opens what another session shares; it counts no second time. Nothing where it has to be counted and does not fit.
  std::optional<Charge> join(uint64_t shared, uint64_t bytes);

  /// False, and nothing changed, when more than that is taken.
  bool setLimit(uint64_t bytes, uint64_t revision);
  uint64_t limitBytes() const;
  /// By all sessions of the claim.
  uint64_t usedBytes() const;
  uint64_t left() const;
  /// By this session, with what it shares.
  uint64_t ownBytes() const { return own_.load(std::memory_order_relaxed); }

 private:
  struct Content;
  struct Lock;

  uint64_t sum() const;
  /// Whether so much more fits, once those that have ended have left.
  bool fits(uint64_t bytes);
  /// Empties the seats of workers that have ended.
  void sweep() const;
  void clearSeat(uint32_t seat) const;
  void unmap();

  Content* content_ = nullptr;
  uint32_t seat_ = 0;
  bool isShared_ = false;
  bool isAtRest_ = false;
  std::atomic<uint64_t> own_{0};
  std::map<uint64_t, uint32_t> opened_;  ///< how often this session has each
};

}  // namespace millpond::worker
