// SPDX-License-Identifier: Apache-2.0
// Notes the calls of the program and the work of the devices for it, and makes records of both, tied by numbers.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cupti/buffers.h"
#include "cupti/call_names.h"
#include "cupti/clock.h"
#include "cupti/thread_notes.h"
#include "cupti/types.h"
#include "cupti/work.h"

namespace millpond {
struct ObservedCall;
}

namespace millpond::profiler {

class Collector {
 public:
  /// One for the process, never destroyed.
  static Collector& instance();

  Buffers& buffers() { return buffers_; }
  Clock& clock() { return clock_; }

  Result enable(uint32_t kind);
  Result disable(uint32_t kind);
  /// Whether records are made of this call of the driver, whatever applies to others.
  Result enableDriverCall(uint32_t number, bool isWanted);
  /// The same for a call of the runtime.
  Result enableRuntimeCall(uint32_t number, bool isWanted);
  /// Delivers everything that is complete to the program.
  Result flush();
  /// Threads are identified as by the system, not as by pthread_self().
  void useSystemThreads(bool areWanted) { systemThreads_.store(areWanted); }
  bool usesSystemThreads() const { return systemThreads_.load(); }

 private:
  struct Call {
    Kind kind = kDriver;
    uint32_t number = 0;  ///< CUPTI's
    int64_t start = 0, end = 0;
    int32_t result = 0;
    uint32_t threadId = 0;
    uint32_t correlation = 0;
    uint32_t thread = 0;  ///< in the session
    uint64_t streamBegin = 0, streamEnd = 0;
    uint64_t kinds = 0;  ///< those that were enabled
    bool hasStream = false;
    uint64_t stream = 0;
    bool isNoted = false;   ///< as a record of its own
    bool isNested = false;  ///< within a call of the runtime, whose correlation id it has
    std::vector<ExternalId> externalIds;
  };
  /// The part of a call to which later work of the devices is linked.
  struct Sent {
    uint64_t streamEnd = 0;
    int64_t start = 0;  ///< of the call
    uint32_t correlation = 0;
    uint64_t kinds = 0;
    bool hasStream = false;
    uint64_t stream = 0;
  };
  using SentOfThread = std::map<uint64_t, Sent>;  ///< by where their commands begin
  struct Place {
    uint32_t context = kNone, stream = kNone;
  };

  Collector() = default;
  static void called(const ObservedCall* call);
  static void calledRuntime(uint32_t number, bool isExit, int32_t result);
  std::vector<RuntimeCall>& openCalls();
  void noteRuntime(uint32_t number, bool isExit, int32_t result);
  void keep(Call call);
  void switchRuntime(bool isOn);
  uint32_t threadId() const;
  void note(const ObservedCall& call);
  bool isNoted(uint32_t number) const;
  void remember(const std::vector<Call>& calls);
  const Sent* sentBy(const Work& work) const;
  void write(const Call& call, const Clock::Conversion& stamps);
  void write(const Work& work, uint32_t correlation, int64_t lead, const Clock::Conversion& stamps);

  std::mutex control_;   ///< held while kinds are enabled and disabled
  std::mutex notes_;     ///< for data that calls change
  std::mutex flushing_;  ///< held while records are made

  Buffers buffers_;
  Clock clock_;
  std::atomic<uint64_t> kinds_{0};
  std::array<std::atomic<int64_t>, kKindCount> since_{}, until_{};  ///< when a kind was enabled, and disabled
  std::atomic<bool> systemThreads_{false};
  std::atomic<uint32_t> lastCorrelation_{0};
  std::atomic<uint32_t> runtimeTurn_{0};
  std::bitset<kMostCalls> wanted_, unwanted_;                ///< of the driver; by notes_
  std::bitset<kMostCalls> wantedRuntime_, unwantedRuntime_;  ///< by control_
  bool isRuntimeOn_ = false;                                 ///< by control_
  std::vector<Call> calls_;                                  ///< by notes_
  size_t lostCalls_ = 0;                                     ///< by notes_

  // By flushing_
  WorkReader work_;
  std::unordered_map<uint32_t, SentOfThread> sent_;
  size_t sentCount_ = 0;
  std::unordered_map<uint64_t, Place> places_;  ///< of the program's streams, as the records have them
  Place lastPlace_;
  uint64_t lost_ = 0;
};

}  // namespace millpond::profiler
