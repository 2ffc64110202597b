// SPDX-License-Identifier: Apache-2.0
// The ordering rules of CUDA as a happens-before relation over one program, built op by op. It proves that what the program
// computes does not depend on timing: of two accesses to a slot, one of them a write, one happens before the other. It also
// proves that the program cannot hang: no call waits for a promise or a word that only later ops set.
//
// An op has up to three moments: its call begins, its work on the device is done, its call has returned. Rules: the CUDA
// programming guide on streams, events and implicit synchronisation; the driver API's "API synchronization behavior".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "testing/model/program.h"

namespace millpond::model {

/// A set of moments.
class Moments {
 public:
  void insert(size_t moment);
  void insertAll(const Moments& others);
  bool contains(size_t moment) const;

 private:
  std::vector<uint64_t> words_;
};

/// Why an op cannot come next.
enum class Refusal : uint8_t {
  none,
  race,       // an earlier op, which it depends on or disturbs, may still be in progress
  unordered,  // another thread uses one of its objects, and the order of the calls is undetermined
  stuck,      // its call could wait for a promise or a word that is not set yet
  senseless,  // it is meaningless here
};

class Order {
 public:
  explicit Order(const Program& program);

  /// Adds the next op. If it is refused, this object is unusable, so try on a copy.
  Refusal append(const Op& op);
  /// Promises that functions wait for and that have not been fulfilled yet.
  std::vector<uint8_t> openPromises() const;
  std::vector<uint8_t> openWords() const;

 private:
  struct Moment {
    Moments before;  ///< have happened
    Moments maybe;   ///< and those that it could wait for
  };
  struct Use {
    size_t moment = kNever;
  };
  struct Access {
    size_t write = kNever;
    std::vector<size_t> reads;
  };
  struct Lane {
    size_t last = kNever;  ///< work
    size_t firm = kNever;  ///< the events that have happened when the driver treats the stream as idle
    size_t used = kNever;  ///< return of the last call
    bool isBlocking = true;
    bool isLegacy = false;
  };
  struct Hold {
    bool isPromise = true;
    uint8_t object = 0;
    size_t work = 0;
    size_t call = 0;  ///< its beginning
    std::vector<size_t> observers;
  };
  /// A hold that is over.
  struct Freed {
    size_t work = 0;
    size_t by = 0;  ///< beginning of what ended it
  };
  /// A call of the driver.
  struct Call {
    uint8_t thread = 0;
    bool allocates = false;
    size_t end = 0;
  };
  /// What set a word.
  struct WordSet {
    size_t by = kNever;
    size_t call = kNever;  ///< its return
    bool isWork = false;   ///< of a stream
  };
  struct GraphState {
    bool exists = false;
    std::vector<Op> body;
    size_t last = kNever;
    size_t used = kNever;
  };
  struct EventState {
    size_t work = kNever;
    size_t used = kNever;
  };
  static constexpr size_t kNever = SIZE_MAX;

  size_t moment();
  void after(size_t later, size_t earlier);
  void maybeAfter(size_t later, size_t earlier);
  bool isBefore(size_t earlier, size_t later) const;
  Lane& laneOf(const Op& op);
  bool use(size_t& used);
  bool read(int slot, size_t at, size_t done);
  bool write(int slot, size_t at, size_t done);
  Refusal settle(const Op& op);
  Refusal submit(const Op& op);
  Refusal dispatch(const Op& op);
  Refusal copy(const Op& op);
  Refusal fill(const Op& op);
  Refusal graph(const Op& op);
  Refusal launchGraph(const Op& op);
  Refusal sync(const Op& op);
  Refusal hold(const Op& op, bool isPromise);
  Refusal release(const Op& op, bool isPromise, size_t by, size_t asks);
  bool isHeld(size_t moment) const;
  void blocksOn(size_t work, bool isCertain);
  bool couldDeadlock(const Op& op) const;

  const Program& program_;
  std::vector<Moment> moments_;
  std::vector<size_t> threads_;       ///< last moment of each
  std::vector<size_t> blocked_;       ///< last return of a call that waited, of each thread
  std::vector<size_t> waitedForAll_;  ///< the same, of calls that could wait for all streams
  std::vector<size_t> waits_;         ///< returns of all calls that waited for the device
  std::vector<Lane> lanes_;           ///< streams, with a per-thread default stream for each thread at the end
  std::vector<Access> slots_;
  std::vector<EventState> events_;
  std::vector<GraphState> graphs_;
  std::vector<size_t> signals_;
  std::vector<Hold> holds_;
  std::vector<Freed> freed_;
  std::vector<Call> calls_;
  size_t heldUp_ = 0;  ///< commands behind holds
  std::vector<WordSet> wordsSet_;
  std::vector<bool> promisesUsed_;
  std::vector<bool> promisesFulfilled_;
  std::vector<size_t> hostFunctions_;
  bool hasBegun_ = false;  ///< anything other than graphs was created

  // Indices of the op that is being added
  size_t begin_ = 0;
  size_t work_ = kNever;
  size_t early_ = kNever;  ///< the first moment at which the work can read its source, if that is host memory
  size_t end_ = 0;
  bool isWait_ = false;
  bool locks_ = false;      ///< it waits in the driver with a lock that calls of other threads need
  bool allocates_ = false;  ///< memory or a stream
};

/// Refusal::none if the whole program is deterministic and terminates.
Refusal check(const Program& program, size_t* at);

}  // namespace millpond::model
