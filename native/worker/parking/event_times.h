// SPDX-License-Identifier: Apache-2.0
// Timestamps of events recorded before the session was parked, so that elapsed times stay valid after the replay. Times
// between an old and a new event use the time of day.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "worker/core/handle_map.h"
#include "worker/device/driver.h"

namespace millpond::worker {

class EventTimes {
 public:
  /// A time of day, and how long after it.
  struct Moment {
    uint64_t unixNs = 0;
    double ms = 0;
  };

  explicit EventTimes(const Driver& driver) : driver_(driver) {}

  /// Whether there is an event from before parking.
  bool any() const { return !happened_.empty(); }
  /// A restored event had happened at that time. Its context, of that number, is current.
  CUresult happened(uint64_t event, uint16_t context, Moment at);
  void forget(uint64_t event) { happened_.erase(event); }
  void forgetContext(uint16_t context) { anchors_.erase(context); }
  /// Records the times of all events of the current context, which has that number. Returns false if one is unknown.
  bool note(HandleMap& handles, uint16_t context);
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const auto& [event, at] : happened_) visit(event, at);
  }
  /// The time between two events, at least one of which is from before parking.
  CUresult between(const HandleMap::Entry& start, const HandleMap::Entry& end, float& ms) const;

 private:
  /// Relates the events of a context to the time of day.
  struct Anchor {
    CUevent event = nullptr;
    uint64_t atNs = 0;
  };
  CUresult find(const HandleMap::Entry& event, Moment& at) const;

  const Driver& driver_;
  std::unordered_map<uint64_t, Moment> happened_;  ///< by event
  std::unordered_map<uint16_t, Anchor> anchors_;   ///< by context
};

}  // namespace millpond::worker
