// SPDX-License-Identifier: Apache-2.0
// The gate of one device of a session, with the driver behind it: lets work through, and measures by pairs of events
// what the GPU took for it.
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
#include "worker/gate/session_gate.h"

namespace millpond::worker::gate {

/// Where work goes.
struct Place {
  CUstream stream = nullptr;  ///< null: the default stream of the context
  uint16_t context = 0;
};

class ComputeGate {
 public:
  /// `useContext` makes a context of the session current, and leaves it so; false where it cannot.
  ComputeGate(const Driver& driver, std::unique_ptr<SessionGate> session, std::function<bool(uint16_t)> useContext)
      : driver_(driver), session_(std::move(session)), useContext_(std::move(useContext)) {}

  SessionGate& session() { return *session_; }
  const SessionGate& session() const { return *session_; }

  /// Whether there is nothing for `progress` to see.
  bool isAtRest() const { return !awaits() && session_->isAtRest(); }
  /// Sees what has landed. `hasWork`: some waits to be admitted. Whether anything has happened.
  bool progress(int64_t now, bool hasWork);
  /// Whether something is in flight, of which it is to be seen when it lands.
  bool awaits() const { return !flights_.empty() || !open_.spans.empty(); }

  /// Whether that work may be issued. Where not, what was issued so far is measured by itself.
  bool admit(const Work& work, int64_t now);
  /// Just before and after the driver is given work that was admitted; `isMade` where it took it. `endsNow`: no mark may
  /// be made later.
  void before(const Place& place);
  void after(const Work& work, bool isMade, bool endsNow, int64_t now);
  /// Before anything else goes into streams: what it waits for is no time of the GPU's.
  void endSpans();
  /// Ends the batch, so that it is seen when it lands.
  void close(int64_t now);
  /// The session ends: what is at work is charged as far as it went, since the GPU has worked for it.
  void abandon(int64_t now);
  /// That context has ended, and its events with it.
  void forget(uint16_t context);

 private:
  /// Work in a row in one stream.
  struct Span {
    Place place;
    CUevent begin = nullptr;
    CUevent end = nullptr;  ///< null: it goes on
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
    CUevent frontier = nullptr;  ///< the end of what was measured last
  };

  CUevent take(uint16_t context);
  CUevent record(const Place& place);
  void end(Span& span);
  bool hasLanded(const Batch& batch);
  void land(Batch& batch, int64_t now);
  std::optional<int64_t> measure(const Batch& batch);
  std::optional<double> measure(const Batch& batch, uint16_t context);
  std::optional<double> elapsed(CUevent from, CUevent to) const;

  const Driver& driver_;
  std::unique_ptr<SessionGate> session_;
  std::function<bool(uint16_t)> useContext_;
  CostHistory history_;
  Batch open_;
  std::deque<Batch> flights_;
  std::unordered_map<uint16_t, Events> events_;
};

}  // namespace millpond::worker::gate
