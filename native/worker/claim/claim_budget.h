// SPDX-License-Identifier: Apache-2.0
// The memory of one device that all sessions of a claim have taken, and its limit. The workers of these sessions map
// one file. Each writes what it has taken into its own slot, and the sum is never stored, so a worker that is killed at
// any instruction leaves a correct sum: its memory is returned when its process, and with it the driver's memory, is
// gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "worker/claim/claim_seats.h"

namespace millpond::worker {

/// Maximum number of allocations that sessions of an allocation share at a time on a device. Additional ones count for
/// each session that opens them.
inline constexpr uint32_t kClaimShared = 2048;

class ClaimBudget {
 public:
  /// A reservation of memory.
  struct Charge {
    uint64_t bytes = 0;
    uint64_t shared = 0;  ///< number of shared memory, counted once for all sessions that have it open; 0: not shared
  };

  /// A budget for this session alone, until it enters a shared one. `contextBytes`: size of a session's context on the
  /// device. The claim has memory for one context beside its limit; the contexts of further sessions count towards the
  /// limit.
  explicit ClaimBudget(uint64_t limitBytes, uint64_t contextBytes = 0);
  /// Returns all memory taken.
  ~ClaimBudget();
  ClaimBudget(const ClaimBudget&) = delete;
  ClaimBudget& operator=(const ClaimBudget&) = delete;

  /// Shares the budget in that file from now on; nothing may have been taken before. `revision`: of the limit; a higher
  /// one replaces the limit in the file. Call it on a thread that lives as long as the session, because other sessions
  /// detect its end.
  Status enter(const std::string& path, uint64_t revision);
  /// The session is over, and its process is about to end. Its memory counts until then. Call it on the thread that
  /// entered.
  void rest();

  /// Charges the session's context, once, until the session is over. Returns false if it does not fit.
  bool takeContext();
  /// Whether memory of a session that is over will be returned when its process ends.
  bool awaitsEnd();
  /// Number of sessions of the claim, including those whose processes have not ended yet.
  uint32_t sessions() const;
  /// Size of this session's context if it counts towards the claim's limit; 0 if it is the one that the claim has
  /// beside it.
  uint64_t contextInLimit() const;
  /// Returns nothing if that would exceed the limit.
  std::optional<Charge> take(uint64_t bytes);
  void give(const Charge& charge);
  /// Allows other sessions to open this memory, by its number. Without a number it counts for each of them.
  void share(Charge& charge);
  /// Opens memory that another session shares; it is not counted a second time. Returns nothing if it must be counted
  /// and does not fit.
  std::optional<Charge> join(uint64_t shared, uint64_t bytes);

  /// Returns false, and changes nothing, if more than that is in use.
  bool setLimit(uint64_t bytes, uint64_t revision);
  uint64_t limitBytes() const;
  /// In use by all sessions of the claim, without the context that the claim has beside its limit.
  uint64_t usedBytes() const;
  uint64_t left() const;
  /// In use by this session, including shared memory but not its context.
  uint64_t ownBytes() const { return own_.load(std::memory_order_relaxed); }

 private:
  struct Content;
  struct Lock;

  uint64_t withContext(uint64_t limitBytes) const;
  uint64_t sum() const;
  /// Whether that much more fits after ended sessions have been removed.
  bool fits(uint64_t bytes);
  /// Clears the slots of workers that have ended.
  void sweep() const;
  void clearSeat(uint32_t seat) const;
  void unmap();

  const uint64_t contextBytes_;
  uint64_t takenContext_ = 0;
  Content* content_ = nullptr;
  uint32_t seat_ = 0;
  bool isShared_ = false;
  bool isAtRest_ = false;
  std::atomic<uint64_t> own_{0};
  std::map<uint64_t, uint32_t> opened_;  ///< how often this session has opened each
};

}  // namespace millpond::worker
