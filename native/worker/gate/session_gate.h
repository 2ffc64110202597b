// SPDX-License-Identifier: Apache-2.0
// One session at the gate of one GPU: decides how much of its work may be in flight, and when it may issue more. Used
// by the thread that issues its work; times are nanoseconds of the monotonic clock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "worker/gate/gate_file.h"

namespace millpond::worker::gate {

/// Maximum predicted work in flight; the second value is for best-effort sessions.
inline constexpr int64_t kFlightNs = 2'000'000;
inline constexpr int64_t kBestEffortFlightNs = 500'000;
/// How long a time slice is kept for a program that usually submits again immediately, such as one that waits for each
/// result.
inline constexpr int64_t kLingerNs = 100'000;
/// Work in flight for twice its expected time plus this is not waited for: it may itself be waiting.
inline constexpr int64_t kOverdueNs = 2'000'000;
/// Work that exceeds its expected time by this is assumed to wait for something: it is charged only when it has completed.
inline constexpr int64_t kWaitsNs = 500'000'000;

class SessionGate {
 public:
  /// `claim`: equal for all sessions that share an account; not 0; its upper half identifies the tenant (`tenantOf`).
  static Result<std::unique_ptr<SessionGate>> open(std::unique_ptr<GateFile> file, uint64_t claim, Share share,
                                                   int64_t now);
  ~SessionGate();
  SessionGate(const SessionGate&) = delete;
  SessionGate& operator=(const SessionGate&) = delete;

  /// May be called on any thread; takes effect with the next `look`.
  void setShare(Share share);

  /// Called regularly, and before `isOn`: checks for other sessions and the state of the time slice.
  void look(int64_t now, bool hasWork);
  /// Whether `look` would find nothing new: the claim has the GPU to itself, and the session knows that.
  bool isAtRest() const {
    return !isOn_ && !hasTurn_ && !isWaiting_ && file_->claims() <= 1 &&
           wanted_.load(std::memory_order_relaxed) == pack(share_) && !share_.isCapped();
  }
  /// Whether work must be admitted and measured. It need not be while the claim has the GPU to itself.
  bool isOn() const { return isOn_; }

  /// Whether work may be issued now. `expectedNs`: its expected duration; none: unknown, and the work then runs alone.
  bool admit(std::optional<int64_t> expectedNs, int64_t now);
  /// Whether brief work may be issued without a turn, because its claim has that much credit left: it is charged the
  /// expected duration at once.
  bool admitBrief(std::optional<int64_t> expectedNs, int64_t now);
  /// Charges work that must not wait for a turn, because what has the turn waits for it: beyond the share, as a debt.
  void chargeNow(int64_t expectedNs, int64_t now);
  /// How long another call of `admit` cannot succeed unless work completes.
  int64_t napNs(int64_t now) const;

  /// Notes work that was issued after its admission. It is in flight as part of the batch that `close` ends.
  void issued(std::optional<int64_t> expectedNs, int64_t now);
  /// Expected duration of the work issued in the open batch.
  int64_t openNs() const { return openNs_; }
  bool hasOpen() const { return openNs_ > 0; }
  /// Ends the batch and returns its number.
  uint64_t close(int64_t now);
  /// The batch is running, and the session ends without waiting for it. Its time so far is charged to the claim.
  void abandon(uint64_t batch, int64_t now);
  /// The whole batch has completed, after the given time of the GPU's clock; none: unknown. Returns the charged time.
  int64_t landed(uint64_t batch, std::optional<int64_t> measuredNs, int64_t now);

  /// Measured device time of this session, in nanoseconds.
  int64_t usedNs() const { return usedNs_; }
  /// Target size of batches.
  int64_t batchNs() const { return flightLimit() / 4; }

 private:
  struct Flight {
    uint64_t number;
    int64_t expectedNs;
    int64_t sharedFrom;  ///< its use is at most the growth of the shared time from here
    int64_t openedAt;    ///< and at most the time passed since then
    int64_t dueAt;
    int64_t reservedNs;  ///< charged before it has completed
    int64_t waitsAt;     ///< when it can only be waiting for something
    bool isOverdue = false;
  };
  /// Time for which a turn was charged before its work had completed.
  struct Prepaid {
    uint64_t last;  ///< it is for batches up to this one
    int64_t ns;
  };

  SessionGate(std::unique_ptr<GateFile> file, uint32_t slot, Share share)
      : file_(std::move(file)), slot_(slot), share_(share), wanted_(pack(share)) {}

  static uint64_t pack(Share share) {
    return uint64_t{static_cast<uint32_t>(share.priority)} << 32 | static_cast<uint32_t>(share.owes) << 16 |
           static_cast<uint32_t>(share.serviceClass) << 8 | share.percent;
  }
  static Share unpack(uint64_t packed) {
    return {static_cast<ServiceClass>(packed >> 8 & 0xff), static_cast<uint32_t>(packed & 0xff),
            static_cast<int32_t>(packed >> 32), (packed >> 16 & 1) != 0};
  }
  int64_t flightLimit() const;
  int64_t expected(std::optional<int64_t> ns) const { return ns ? std::max<int64_t>(*ns, 1) : flightLimit(); }
  bool ask(int64_t now);
  void finish(int64_t now);
  void dropTurn();
  void startAlone(int64_t now);
  void takeHeld(TimeSlicer& slicer);
  /// Charges the unpaid part of a batch that has completed or is given up.
  void settle(TimeSlicer& slicer, const Flight& flight, int64_t usedNs, int64_t now);
  void markOverdue(int64_t now);

  std::unique_ptr<GateFile> file_;
  const uint32_t slot_;
  bool isAlone_ = false;  ///< the table of the file was abandoned
  Share share_;
  std::atomic<uint64_t> wanted_;
  bool isOn_ = false;
  bool hasTurn_ = false;
  bool isWaiting_ = false;
  bool isFinishing_ = false;
  bool comesBack_ = false;
  int64_t budgetNs_ = 0;
  int64_t turnNs_ = 0;    ///< issued in this time slice
  int64_t flightNs_ = 0;  ///< expected time of work in flight that is not overdue, with the open batch
  int64_t openNs_ = 0;
  int64_t openFrom_ = 0;  ///< shared time at the beginning of the open batch
  int64_t openedAt_ = 0;
  int64_t askAgainAt_ = 0;
  int64_t emptySince_ = 0;
  int64_t sharedUsed_ = 0;  ///< the part of the shared time used by completed work
  int64_t lastNow_ = 0;
  int64_t sweptAt_ = 0;
  uint64_t lastBatch_ = 0;
  int64_t usedNs_ = 0;
  std::deque<Flight> flights_;
  std::deque<Prepaid> prepaid_;
};

}  // namespace millpond::worker::gate
