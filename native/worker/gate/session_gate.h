// SPDX-License-Identifier: Apache-2.0
// One session at the gate of one GPU: how much of its work may be in flight, and when more. Used by the thread that
// issues its work; times are nanoseconds of the monotonic clock.
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

/// Most work in flight, as it is predicted, and of best-effort sessions.
inline constexpr int64_t kFlightNs = 2'000'000;
inline constexpr int64_t kBestEffortFlightNs = 500'000;
/// For how long a turn is kept for a program that uses to come back at once, as one does that waits for each result.
inline constexpr int64_t kLingerNs = 100'000;
/// In flight for so much longer than it was thought to take twice, work is not waited for: it may be waiting itself.
inline constexpr int64_t kOverdueNs = 2'000'000;

class SessionGate {
 public:
  /// `claim`: the same for all sessions that have the share together; not 0, and its upper half is the tenant's (`tenantOf`).
  static Result<std::unique_ptr<SessionGate>> open(std::unique_ptr<GateFile> file, uint64_t claim, Share share,
                                                   int64_t now);
  ~SessionGate();
  SessionGate(const SessionGate&) = delete;
  SessionGate& operator=(const SessionGate&) = delete;

  /// From any thread; it counts from the next `look`.
  void setShare(Share share);

  /// Once in a while, and before `isOn`: sees who else is there, and what has become of the turn.
  void look(int64_t now, bool hasWork);
  /// Whether `look` would see nothing: the claim has the GPU for itself, and that is known.
  bool isAtRest() const {
    return !isOn_ && !hasTurn_ && !isWaiting_ && file_->claims() <= 1 &&
           wanted_.load(std::memory_order_relaxed) == pack(share_) && !share_.isCapped();
  }
  /// Whether work has to be admitted and measured. It need not be where the claim has the GPU for itself.
  bool isOn() const { return isOn_; }

  /// Whether work may be issued now. `expectedNs`: its expected duration; none: unknown, and it then runs alone.
  bool admit(std::optional<int64_t> expectedNs, int64_t now);
  /// For how long asking `admit` again is no use, unless work lands.
  int64_t napNs(int64_t now) const;

  /// Work that was issued after it was admitted. It is in flight as part of the batch that `close` ends.
  void issued(std::optional<int64_t> expectedNs, int64_t now);
  /// Expected duration of the work issued in the open batch.
  int64_t openNs() const { return openNs_; }
  bool hasOpen() const { return openNs_ > 0; }
  /// Ends the batch: its number.
  uint64_t close(int64_t now);
  /// The batch is at work and will not be waited for: the session ends. What it took so far is the claim's.
  void abandon(uint64_t batch, int64_t now);
  /// All of the batch is done, and took so long by the GPU's clock; none: that is not known.
  /// Returns what is taken for it.
  int64_t landed(uint64_t batch, std::optional<int64_t> measuredNs, int64_t now);

  /// Measured device time of this session, in nanoseconds.
  int64_t usedNs() const { return usedNs_; }
  /// Batches are made so large.
  int64_t batchNs() const { return flightLimit() / 4; }

 private:
  struct Flight {
    uint64_t number;
    int64_t expectedNs;
    int64_t sharedFrom;  ///< what it has used is at most what the shared time grows by from here
    int64_t openedAt;    ///< and no more than the time that has passed since
    int64_t dueAt;
    bool isOverdue = false;
  };

  SessionGate(std::unique_ptr<GateFile> file, uint32_t seat, Share share)
      : file_(std::move(file)), seat_(seat), share_(share), wanted_(pack(share)) {}

  static uint64_t pack(Share share) {
    return uint64_t{static_cast<uint32_t>(share.priority)} << 32 | static_cast<uint32_t>(share.serviceClass) << 8 |
           share.percent;
  }
  static Share unpack(uint64_t packed) {
    return {static_cast<ServiceClass>(packed >> 8 & 0xff), static_cast<uint32_t>(packed & 0xff),
            static_cast<int32_t>(packed >> 32)};
  }
  int64_t flightLimit() const;
  int64_t expected(std::optional<int64_t> ns) const { return ns ? std::max<int64_t>(*ns, 1) : flightLimit(); }
  bool ask(int64_t now);
  void finish(int64_t now);
  void dropTurn();
  void startAlone(int64_t now);
  void markOverdue(int64_t now);

  std::unique_ptr<GateFile> file_;
  const uint32_t seat_;
  bool isAlone_ = false;  ///< the file's table was left
  Share share_;
  std::atomic<uint64_t> wanted_;
  bool isOn_ = false;
  bool hasTurn_ = false;
  bool isWaiting_ = false;
  bool isFinishing_ = false;
  bool comesBack_ = false;
  int64_t budgetNs_ = 0;
  int64_t turnNs_ = 0;    ///< issued in this turn
  int64_t flightNs_ = 0;  ///< expected of what is in flight and not overdue, with the open batch
  int64_t openNs_ = 0;
  int64_t openFrom_ = 0;  ///< shared time at the begin of the open batch
  int64_t openedAt_ = 0;
  int64_t askAgainAt_ = 0;
  int64_t emptySince_ = 0;
  int64_t sharedUsed_ = 0;  ///< how far the shared time was used up by what has landed
  int64_t lastNow_ = 0;
  int64_t sweptAt_ = 0;
  uint64_t lastBatch_ = 0;
  int64_t usedNs_ = 0;
  std::deque<Flight> flights_;
};

}  // namespace millpond::worker::gate
