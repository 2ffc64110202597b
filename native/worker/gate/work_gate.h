// SPDX-License-Identifier: Apache-2.0
// The gate of one lane of a device of a session, and the driver behind it: admits work, and measures with pairs of events
// how much of the lane's time it took.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "worker/device/driver.h"
#include "worker/gate/cost_history.h"
#include "worker/gate/lane.h"
#include "worker/gate/session_gate.h"

namespace millpond::worker::gate {

/// The destination of work.
struct Place {
  CUstream stream = nullptr;  ///< null: the default stream of the context
  uint16_t context = 0;
};

class WorkGate {
 public:
  /// `useContext` makes a context of the session current, and leaves it current; false if it cannot.
  WorkGate(Lane lane, const Driver& driver, std::unique_ptr<SessionGate> session,
           std::function<bool(uint16_t)> useContext)
      : lane_(lane), driver_(driver), session_(std::move(session)), useContext_(std::move(useContext)) {}

  Lane lane() const { return lane_; }
  SessionGate& session() { return *session_; }
  const SessionGate& session() const { return *session_; }

  /// Whether `progress` has nothing to do.
  bool isAtRest() const { return !awaits() && session_->isAtRest(); }
  /// Detects completed work. `hasWork`: work is waiting to be admitted. Returns whether anything has happened.
  bool progress(int64_t now, bool hasWork);
  /// Whether work is in flight whose completion must be detected.
  bool awaits() const { return !flights_.empty() || !open_.spans.empty(); }

  /// Whether that work may be issued. If not, the work issued so far ends its batch.
  bool admit(const Work& work, int64_t now);
  /// Whether a small copy may be issued without a turn: within the share, at its expected cost. It is not in flight.
  bool admitBrief(const Work& work, int64_t now) { return session_->admitBrief(history_.expected(work), now); }
  /// Charges a copy that must not wait for a turn, at its expected cost.
  void chargeNow(const Work& work, int64_t now) {
    session_->chargeNow(
        history_.expected(work).value_or(kShortestNs + static_cast<int64_t>(work.size / kSlowBytesPerNs)), now);
  }
  /// Called just before and after the driver gets admitted work; `isMade`: the driver accepted it. `endsNow`: no mark
  /// may be recorded later.
  void before(const Place& place);
  void after(const Work& work, bool isMade, bool endsNow, int64_t now);
  /// Called before any other operation is put into streams: time spent waiting for it is not GPU time.
  void endSpans();
  /// The same for work of another lane, for which only the work in its own stream and in default streams waits.
  void endSpansBefore(const Place& place);
  /// Ends the batch, so that its completion is detected.
  void close(int64_t now);
  /// The session ends: running work is charged for its progress so far, because the GPU has worked on it.
  void abandon(int64_t now);
  /// That context has ended, and its events with it.
  void forget(uint16_t context);

 private:
  /// Speed of a copy that was never measured: below that of any link between a card and its host.
  static constexpr uint64_t kSlowBytesPerNs = 4;
  static constexpr int64_t kShortestNs = 1000;

  /// Consecutive work in one stream.
  struct Span {
    Place place;
    CUevent begin = nullptr;  ///< null: the time of its work is not measured
    CUevent end = nullptr;    ///< null: it continues
  };
  struct Batch {
    uint64_t number = 0;
    std::vector<Span> spans;
    std::vector<DoneWork> done;
  };
  struct Interval {
    double from, to;  ///< ms
  };
  struct Events {
    std::vector<CUevent> spare;
    std::vector<CUevent> spareMarks;  ///< without timing
    CUevent frontier = nullptr;       ///< the end of the last measured work
  };

  enum class Timing { kOn, kOff };
  std::vector<CUevent>& spares(uint16_t context, Timing timing);
  CUevent take(uint16_t context, Timing timing);
  CUevent record(const Place& place, Timing timing);
  void end(Span& span);
  /// Whether a queue has room for another pair of timed records.
  bool canMeasure() const;
  /// Returns the events of a span that is over or was not needed, except those in use elsewhere.
  void giveBack(const Span& span);
  bool hasLanded(const Batch& batch);
  void land(Batch& batch, int64_t now);
  std::optional<int64_t> measure(const Batch& batch);
  std::optional<double> measure(const Batch& batch, uint16_t context);
  std::optional<double> elapsed(CUevent from, CUevent to) const;

  const Lane lane_;
  const Driver& driver_;
  std::unique_ptr<SessionGate> session_;
  std::function<bool(uint16_t)> useContext_;
  CostHistory history_;
  Batch open_;
  std::deque<Batch> flights_;
  std::unordered_map<uint16_t, Events> events_;
  size_t measured_ = 0;  ///< spans of `open_` and `flights_` with timed records
};

}  // namespace millpond::worker::gate
