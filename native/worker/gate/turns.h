// SPDX-License-Identifier: Apache-2.0
// Whose turn it is on a GPU that several sessions share: the policy, on a table that all of its workers have in common.
// It knows no clock, no driver and no lock: times are nanoseconds of whatever clock the callers share.
//
// Each of these workers can be compromised and then write anything into the table, at any time. So what is read from it is
// never trusted: an index is cut to its array where it is used, a share to what shares can be, and every loop is bounded by a
// constant. Times and sums may be any number (they wrap around): a wrong one can delay sessions, and nothing else.
//
// One session at a time has the turn, because work of two contexts that a GPU slices between them cannot be told apart
// by measuring it. The share and what was used of it belong to the claim, whose sessions have one account. Claims that
// wait within their share go first, then burstable ones, then best effort; among equals the one of the higher priority,
// then the one that has had least for its share; among the sessions of a claim the one that has had least. A turn is
// short, and one whose work does not end in time is no longer exclusive: others go beside it, and what it takes is the
// claim's debt, which outlives its sessions, and the claim: it is its tenant's then.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "worker/claim/share.h"

namespace millpond::worker::gate {

/// Sessions of a GPU: more than its memory has room for contexts.
inline constexpr uint32_t kSeats = 2048;
/// Claims that have sessions at a GPU, or had and are in debt. As many as sessions: a tenant with many small claims must not
/// keep the sessions of others out.
inline constexpr uint32_t kAccounts = kSeats;
inline constexpr uint32_t kNobody = UINT32_MAX;

/// Most time that a claim may have saved up for its share, in waiting or in idleness: so far the time of a window can
/// be above the share, beside what is in flight.
inline constexpr int64_t kMostCreditNs = 10'000'000;
/// A turn as such, when others wait.
inline constexpr int64_t kLongestTurnNs = 5'000'000;
inline constexpr int64_t kShortestTurnNs = 1'000'000;
/// Time after the expected end of a turn from which its unfinished work is no longer waited for.
inline constexpr int64_t kTurnSlackNs = 2'000'000;
/// For how long who comes first by rank waits for the end of what is in flight.
inline constexpr int64_t kYieldNs = 1'000'000;
/// Overlap of a turn with the expected end of the previous one, which keeps the GPU busy.
inline constexpr int64_t kOverlapNs = 100'000;
/// Time after which a session that was given the turn and does not take it is skipped.
inline constexpr int64_t kCallNs = 2'000'000;
/// Credit of a waiting session that ends the turn of a session of the same rank.
inline constexpr int64_t kWakeNs = 1'000'000;
/// Limit of the debt that a burstable claim accumulates by using idle time.
inline constexpr int64_t kBurstDebtNs = 5'000'000;
/// Longer than any machine is on: a debt is paid by waiting, however long that takes.
inline constexpr int64_t kLongestWaitNs = 365LL * 86'400 * 1'000'000'000;

/// No turn ends later than this from now, whatever the table says.
inline constexpr int64_t kFarthestEndNs = kLongestTurnNs + kTurnSlackNs;

/// Order in which waiting sessions are served.
enum class Rank : uint32_t { kWithinShare, kBurst, kBestEffort, kNone };
inline constexpr size_t kRanks = 3;

struct Seat {
  enum class State : uint32_t {
    kFree,
    kIdle,
    kWaiting,
    kCalled,  ///< has the turn, and does not know it yet
    kTurn,
  };
  State state = State::kFree;
  uint32_t mustYield = 0;  ///< to one of those who wait
  uint32_t account = 0;
  uint32_t isInFlight = 0;
  Rank rank = Rank::kNone;  ///< of its last turn
  int64_t until = 0;        ///< its turn is exclusive
  int64_t usedNs = 0;
  int64_t served = 0;  ///< time used, as its account's `inner` has it
};

/// The tenant in the key of a claim; 0: none is known.
inline uint32_t tenantOf(uint64_t claim) { return claim >> 63 != 0 ? 0 : static_cast<uint32_t>(claim >> 32); }

/// Account of a claim at this GPU, shared by its sessions.
struct Account {
  uint64_t claim = 0;  ///< 0: the entry is free
  uint32_t seats = 0;
  Share share;
  int64_t credit = 0;                    ///< what it may use without being above its share; below 0: debt
  int64_t creditAt = 0;                  ///< as of when
  std::array<int64_t, kRanks> served{};  ///< time used for its share, by rank, as the table's `served` has it
  int64_t inner = 0;                     ///< `served` of its session that had the last turn
};

struct Table {
  uint32_t holder = kNobody;
  uint32_t taken = 0;     ///< seats
  uint32_t claims = 0;    ///< accounts with sessions
  uint32_t inFlight = 0;  ///< sessions
  int64_t shared = 0;     ///< time, divided by the sessions that were in flight
  int64_t sharedAt = 0;
  std::array<int64_t, kRanks> served{};  ///< `served` of who had the last turn of that rank
  std::array<Account, kAccounts> accounts{};
  std::array<Seat, kSeats> seats{};
};

class Turns {
 public:
  explicit Turns(Table& table) : table_(table) {}

  /// A session of that claim, which is not 0; none where all seats are taken, or all accounts by claims with sessions.
  std::optional<uint32_t> sit(uint64_t claim, Share share, int64_t now);
  /// The same at that seat, which is free. False where all accounts are taken.
  bool sitAt(uint32_t seat, uint64_t claim, Share share, int64_t now);
  void leave(uint32_t seat, int64_t now);
  /// Sets the share of the session's claim.
  void setShare(uint32_t seat, Share share, int64_t now);

  struct Answer {
    bool isMine = false;
    int64_t budgetNs = 0;  ///< what may be issued in this turn
    int64_t againNs = 0;   ///< when to ask again, from now, where it is not
  };
  /// The session has work for the GPU. Who has the turn already gets another one if nobody better waits.
  Answer ask(uint32_t seat, int64_t now);
  /// The turn's work is in flight, and there will be no more of it: others may begin when it is about to end.
  void finishing(uint32_t seat, int64_t endsAt, int64_t now);
  /// The session wants nothing, or gives up the rest of its turn.
  void pass(uint32_t seat, int64_t now);

  /// It has work in flight from here on, and has none any more.
  void takeOff(uint32_t seat, int64_t now);
  void land(uint32_t seat, int64_t now);
  /// The GPU's time as each of those in flight has had it: the most that work can have used is how far this went.
  int64_t sharedTime(int64_t now);
  void charge(uint32_t seat, int64_t usedNs, int64_t now);

  bool hasTurn(uint32_t seat) const;
  /// What the claim of that session may use now; below 0: its debt.
  int64_t credit(uint32_t seat, int64_t now);
  const Table& table() const { return table_; }

  static int64_t turnOf(const Share& share);

 private:
  Seat& at(uint32_t seat) { return table_.seats[seat % kSeats]; }
  const Seat& at(uint32_t seat) const { return table_.seats[seat % kSeats]; }
  Account& accountOf(const Seat& seat);
  const Account& accountOf(const Seat& seat) const;
  static Share shareOf(const Account& account);
  /// `served` of the rank of a seat's last turn, of which it has had one.
  static size_t rankIndex(const Seat& seat);
  /// That of the claim, or one that is free, or of a claim without sessions with the least debt; none.
  std::optional<uint32_t> openAccount(uint64_t claim, Share share, int64_t now);
  /// A tenant's debts at this GPU outlive its claims: when an account gets its first session, the debts of those without
  /// sessions, of those in debt and its own are shared out by percent among those that have sessions, so that all of them
  /// are repaid at the same time and none is lost. Burstable and best-effort claims have no debts to speak of.
  void shareDebts(uint32_t opened, int64_t now);
  void countSeats();
  void refresh(Account& account, int64_t now);
  Rank rankOf(const Seat& seat) const;
  /// What a claim has to have for a session to begin, so that turns are not too small.
  static int64_t least(const Share& share) { return turnOf(share) / 2; }
  int64_t debtLimit(const Share& share) const;
  void settle(int64_t now);
  /// The first by rank of the waiting sessions and `also`.
  uint32_t best(int64_t now, uint32_t also = kNobody);
  bool isBefore(const Seat& a, const Seat& b) const;
  Answer begin(uint32_t seat, int64_t now);
  void call(uint32_t seat, int64_t now);
  void callNext(int64_t now);
  /// Whether a session of it has the turn or waits for it.
  bool isWanting(uint32_t account) const;
  void press(const Seat& waiting, int64_t now);
  int64_t againAfter(const Seat& seat, int64_t now) const;
  void giveUp(Seat& seat);

  Table& table_;
};

}  // namespace millpond::worker::gate
