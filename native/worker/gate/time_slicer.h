// SPDX-License-Identifier: Apache-2.0
// The scheduling policy of the time slicer: decides which of the sessions that share a GPU has the time slice (here
// "turn"), in a table that all workers of the GPU share. It uses no clock, driver or lock of its own: times are
// nanoseconds of the callers' common clock.
//
// Each of these workers can be compromised and then write anything into the table, at any time. Nothing read from it is
// trusted: an index is clamped to its array where it is used, a share to valid shares, and every loop is bounded by a
// constant. Times and sums may be any number (they wrap around): a wrong one can delay sessions, and nothing else.
//
// One session at a time has the turn, because measurements cannot separate the work of two contexts between which a GPU
// switches. Share and use belong to the claim, which has one account for all of its sessions. Claims that are waiting
// within their share are served first, then burstable ones, then best effort; among equals the higher priority, then
// the least use relative to the share (deficit round robin); within a claim the session with the least use. A turn is
// short. If its work does not end in time it is no longer exclusive: other sessions run beside it, and its time becomes
// a debt of the claim. The debt outlives the sessions, and passes to the tenant when the claim ends.
//
// Work is charged twice: by its expected time when it is issued, so that a claim with many sessions cannot have much in
// flight before any of it is measured, and by its measured time instead when it has completed. A turn is charged for the
// time in which it kept others away, even if its work only waited for something.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "worker/claim/share.h"

namespace millpond::worker::gate {

/// Maximum number of sessions of a GPU; its memory has room for fewer contexts.
inline constexpr uint32_t kSlots = 2048;
/// Maximum number of claims with sessions on a GPU, or with debt. The same as for sessions, so that a tenant with many
/// small claims cannot keep the sessions of others out.
inline constexpr uint32_t kAccounts = kSlots;
inline constexpr uint32_t kNoSlot = UINT32_MAX;

/// Limit of the credit that a claim saves while it waits or is idle. A time window can exceed the share by this amount,
/// in addition to the work in flight.
inline constexpr int64_t kMostCreditNs = 10'000'000;
/// Length of a turn while others wait.
inline constexpr int64_t kLongestTurnNs = 5'000'000;
inline constexpr int64_t kShortestTurnNs = 1'000'000;
/// Time after the expected end of a turn from which its unfinished work is no longer waited for.
inline constexpr int64_t kTurnSlackNs = 2'000'000;
/// How long the first session by rank waits for the end of work in flight.
inline constexpr int64_t kYieldNs = 1'000'000;
/// Overlap of a turn with the expected end of the previous one, which keeps the GPU busy.
inline constexpr int64_t kOverlapNs = 100'000;
/// Time after which a session that was given the turn and does not take it is skipped.
inline constexpr int64_t kCallNs = 2'000'000;
/// Credit of a waiting session that ends the turn of a session of the same rank.
inline constexpr int64_t kWakeNs = 1'000'000;
/// Limit of the debt that a burstable claim accumulates by using idle time.
inline constexpr int64_t kBurstDebtNs = 5'000'000;
/// The same for a claim in debt, for time used while another claim within its share wanted it.
inline constexpr int64_t kOwedDebtNs = 1'000'000'000;
/// A session whose turn ended with its work in flight is still expected to return for this time.
inline constexpr int64_t kBackNs = 20'000'000;
/// Longer than any machine runs: debts are repaid by waiting, however long that takes.
inline constexpr int64_t kLongestWaitNs = 365LL * 86'400 * 1'000'000'000;

/// Limit of the charge for work in flight, which may be waiting and then costs nothing.
inline constexpr int64_t kMostReservedNs = 100'000'000;
/// Time that others leave is given to claims with no more than this in flight, because their work in flight runs beside
/// that of a claim that arrives.
inline constexpr int64_t kMostBurstNs = 50'000'000;

/// No turn ends later than this from now, whatever the table says.
inline constexpr int64_t kFarthestEndNs = kLongestTurnNs + kTurnSlackNs;

/// Order in which waiting sessions are served.
enum class Rank : uint32_t { kWithinShare, kBurst, kBestEffort, kNone };
inline constexpr size_t kRanks = 3;

struct Slot {
  enum class State : uint32_t {
    kFree,
    kIdle,
    kWaiting,
    kCalled,  ///< has the turn, but does not know that yet
    kTurn,
  };
  State state = State::kFree;
  uint32_t mustYield = 0;  ///< of a waiting session
  uint32_t account = 0;
  uint32_t isInFlight = 0;
  Rank rank = Rank::kNone;  ///< of its last turn
  int64_t until = 0;        ///< its turn is exclusive
  int64_t usedNs = 0;
  int64_t served = 0;    ///< time used, as its account's `inner` has it
  int64_t from = 0;      ///< its turn is exclusive since
  int64_t calledNs = 0;  ///< time from when it got the turn until it took it
  int64_t counted = 0;   ///< completed work charged since then
  int64_t flown = 0;     ///< expected time of its work in flight
  int64_t reserved = 0;  ///< charged for that work
  int64_t held = 0;  ///< charged for time in which its turn kept others away without completed work, since `takeHeld`
};

/// The tenant in the key of a claim; 0: none is known.
inline uint32_t tenantOf(uint64_t claim) { return claim >> 63 != 0 ? 0 : static_cast<uint32_t>(claim >> 32); }

/// Account of a claim at this GPU, shared by its sessions.
struct Account {
  uint64_t claim = 0;  ///< 0: the entry is free
  uint32_t slots = 0;
  Share share;
  int64_t credit = 0;                    ///< time that it may use within its share; below 0: debt
  int64_t creditAt = 0;                  ///< time of the last update
  std::array<int64_t, kRanks> served{};  ///< time used for its share, by rank, as the table's `served` has it
  int64_t inner = 0;                     ///< `served` of its session that had the last turn
  int64_t flown = 0;                     ///< of its sessions
};

struct Table {
  uint32_t holder = kNoSlot;
  uint32_t taken = 0;     ///< slots
  uint32_t claims = 0;    ///< accounts with sessions
  uint32_t inFlight = 0;  ///< sessions
  int64_t shared = 0;     ///< time, divided by the sessions that were in flight
  int64_t sharedAt = 0;
  std::array<int64_t, kRanks> served{};  ///< `served` of the last session of that rank to have a turn
  std::array<Account, kAccounts> accounts{};
  std::array<Slot, kSlots> slots{};
};

class TimeSlicer {
 public:
  explicit TimeSlicer(Table& table) : table_(table) {}

  /// Adds a session of that claim, which is not 0; none if all slots are taken, or all accounts by claims with
  /// sessions.
  std::optional<uint32_t> join(uint64_t claim, Share share, int64_t now);
  /// Same, in that free slot. Returns false if all accounts are taken.
  bool joinAt(uint32_t slot, uint64_t claim, Share share, int64_t now);
  void leave(uint32_t slot, int64_t now);
  /// Sets the share of the session's claim.
  void setShare(uint32_t slot, Share share, int64_t now);

  struct Answer {
    bool isMine = false;
    int64_t budgetNs = 0;  ///< work that may be issued in this turn
    int64_t againNs = 0;   ///< time until the next attempt, if refused
  };
  /// The session has work for the GPU. If it already has the turn, it gets another one unless a session of higher rank
  /// waits.
  Answer ask(uint32_t slot, int64_t now);
  /// The turn's work is in flight and complete: others may begin when it is about to end.
  void finishing(uint32_t slot, int64_t endsAt, int64_t now);
  /// The session has no work, or gives up the rest of its turn.
  void pass(uint32_t slot, int64_t now);

  /// The session has work in flight from now on, or no longer has any.
  void beginFlight(uint32_t slot, int64_t now);
  void endFlight(uint32_t slot, int64_t now);
  /// The GPU's time divided by the sessions in flight: work can have used at most the growth of this clock.
  int64_t sharedTime(int64_t now);
  void charge(uint32_t slot, int64_t usedNs, int64_t now);
  /// Charges issued work by its expected time.
  void reserve(uint32_t slot, int64_t expectedNs, int64_t now);
  /// Takes the charge back: the work has completed, or is waiting for something.
  void release(uint32_t slot, int64_t expectedNs);
  /// Time charged since the last call for turns in which work was unfinished: that much of the time of work that was in
  /// flight then is paid.
  int64_t takeHeld(uint32_t slot);

  bool hasTurn(uint32_t slot) const;
  /// Credit of that session's claim; below 0: its debt.
  int64_t credit(uint32_t slot, int64_t now);
  const Table& table() const { return table_; }

  static int64_t turnOf(const Share& share);

 private:
  Slot& at(uint32_t slot) { return table_.slots[slot % kSlots]; }
  const Slot& at(uint32_t slot) const { return table_.slots[slot % kSlots]; }
  Account& accountOf(const Slot& slot);
  const Account& accountOf(const Slot& slot) const;
  static Share shareOf(const Account& account);
  /// `served` of the rank of a slot's last turn; it must have had one.
  static size_t rankIndex(const Slot& slot);
  /// The account of the claim, or a free one, or that of the claim without sessions with the least debt; none.
  std::optional<uint32_t> openAccount(uint64_t claim, Share share, int64_t now);
  /// A tenant's debts on this GPU outlive its claims: when an account gets its first session, the debts of the tenant's
  /// accounts without sessions, of those in debt and its own are divided by percent among the accounts with sessions,
  /// so that all are repaid at the same time and none is lost. Burstable and best-effort claims have negligible debts.
  void shareDebts(uint32_t opened, int64_t now);
  void countSlots();
  void refresh(Account& account, int64_t now);
  Rank rankOf(const Slot& slot) const;
  /// Minimum credit of a claim for a turn to begin, so that turns are not too short.
  static int64_t least(const Share& share) { return turnOf(share) / 2; }
  int64_t debtLimit(const Share& share) const;
  /// Takes back up to that much of the charge for its work in flight.
  void refund(Slot& slot, int64_t ns);
  /// Returns how much the credit fell.
  int64_t deduct(Account& account, int64_t ns, int64_t now);
  /// Whether a session of another claim has the turn or could have it.
  bool doOthersWant(const Slot& slot, int64_t now);
  /// Charges a turn that ends, or is taken once more, for the time in which it kept others away.
  void endHold(uint32_t slot, int64_t now);
  void settle(int64_t now);
  /// The first by rank of the waiting sessions and `also`.
  uint32_t best(int64_t now, uint32_t also = kNoSlot);
  bool isBefore(const Slot& a, const Slot& b) const;
  Answer begin(uint32_t slot, int64_t now);
  void call(uint32_t slot, int64_t now);
  void callNext(int64_t now);
  /// Notes whether some claim that is within its share wants time, or is about to.
  void seeEntitled(int64_t now);
  /// Whether one of its sessions has the turn or waits for it.
  bool isWanting(uint32_t account) const;
  void preempt(const Slot& waiting, int64_t now);
  int64_t againAfter(const Slot& slot, int64_t now) const;
  void giveUp(uint32_t slot, int64_t now);

  Table& table_;
  bool isEntitledThere_ = false;
};

}  // namespace millpond::worker::gate
