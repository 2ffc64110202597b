// SPDX-License-Identifier: Apache-2.0
// Parking: an idle session ends until it is needed again, without its program's notice, if everything left of it can be
// restored elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/commands/memory/charges.h"
#include "worker/commands/memory/device_memory.h"
#include "worker/core/budgets.h"
#include "worker/core/session_part.h"
#include "worker/memory/host_runs.h"
#include "worker/parking/event_times.h"
#include "worker/parking/journal.h"

namespace millpond::worker {

/// Whether an idle session is parked, and whether this session resumes a parked one.
struct Parking {
  int64_t afterNs = 0;     ///< idle time; 0: never
  bool isResumed = false;  ///< its client had another session before
};

class SessionParking : private SessionPart {
 public:
  /// `whyKept`: the reason why the present objects cannot be restored; empty if they can.
  SessionParking(SessionCore& session, const Parking& settings, Budgets& budgets, Charges& charges,
                 DeviceMemory& memory, const HostRuns& hostRuns, Journal& journal, EventTimes& eventTimes,
                 std::function<std::string()> whyKept)
      : SessionPart(session),
        afterNs_(settings.afterNs),
        budgets_(budgets),
        charges_(charges),
        memory_(memory),
        hostRuns_(hostRuns),
        journal_(journal),
        eventTimes_(eventTimes),
        whyKept_(std::move(whyKept)) {}

  // Commands with which the client restores it
  CUresult onEventHappened(const cmd::Decoded<cmd::EventHappened>& command);
  CUresult onSessionRestored(const cmd::Decoded<cmd::SessionRestored>& command);

  /// The idle time after which the session is parked; 0: never.
  int64_t afterNs() const { return afterNs_; }
  /// Records an executed command in the journal, for the objects and settings that it created.
  void note(cmd::Op op, std::span<const std::byte> body);
  /// Parks an idle session, if everything left of it can be restored without the client's notice. True: it is over.
  bool parks(int64_t idleNs);
  /// The session has something to do.
  void isBusy() {
    if (isKept_) [[unlikely]]
      keepsIdle("");
  }
  /// The reason why the idle session is not parked; empty if there is none. May be called on any thread.
  std::string whyNotParked() {
    const std::lock_guard lock(keptMutex_);
    return kept_;
  }
  /// The time between two events, at least one of which was recorded before the session was parked.
  CUresult elapsed(cmd::Op op, std::span<const std::byte> body);

 private:
  /// The reason why the session cannot be parked now. If it is empty, the journal is written.
  std::string whyNotNow();
  /// Sets the result of `whyNotParked`.
  void keepsIdle(std::string why);
  bool isThere(const Subject& subject) const;
  /// Whether the client has taken all data in shared memory.
  bool hasRead();
  bool isQuiet();
  /// Releases unused memory of pools. Returns false if device memory is still in use.
  bool emptyPools();
  /// Adds a command to the journal that is being written.
  void write(cmd::Op op, uint16_t context, std::span<const std::byte> body);
  /// Writes the journal, once for each position. Returns false if it cannot describe an object.
  bool writeJournal();

  const int64_t afterNs_;
  Budgets& budgets_;
  Charges& charges_;
  DeviceMemory& memory_;
  const HostRuns& hostRuns_;
  Journal& journal_;
  EventTimes& eventTimes_;
  const std::function<std::string()> whyKept_;
  std::optional<uint64_t> restoredAt_;  ///< position at which everything was restored
  std::vector<std::byte> written_;      ///< the journal, as it was at that position
  std::optional<uint64_t> writtenAt_;
  std::string toldKept_;
  bool isKept_ = false;  ///< there is a reason
  std::mutex keptMutex_;
  std::string kept_;
};

}  // namespace millpond::worker
