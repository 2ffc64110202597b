// SPDX-License-Identifier: Apache-2.0
// Memory of this process alone becomes the worker's, too, when a kernel gets its address, on whichever thread that is. A call that
// treats memory as the process's own has either begun before that, so that the handover respects it, or finds it mirrored.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>

#include "client/addresses/memory_map.h"
#include "protocol/condition.h"

namespace millpond::client {

class Handover {
  struct Range {
    uint64_t address;
    uint64_t bytes;
    bool meets(const Range& other) const {
      return address < other.address + other.bytes && other.address < address + bytes;
    }
  };

 public:
  /// Calls `begin`, which must not wait, if only this process has the memory there. First waits for a pending handover
  /// of it.
  template <typename Begin>
  bool ifOwn(const MemoryMap& memory, uint64_t address, uint64_t bytes, Begin&& begin) {
    if (!memory.hasLocal()) [[likely]]
      return false;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !run_ || !run_->meets({address, bytes}); });
    const auto run = memory.find(address);
    if (!run || run->kind != MemoryKind::kPinnedLocal) return false;
    begin();
    return true;
  }

  /// A period in which a call reads or writes memory and must not fault: if only this process has the memory, none of
  /// its pages becomes traced before the end of the period.
  class Use {
   public:
    Use(Handover& handover, const MemoryMap& memory, const void* data, uint64_t bytes) : handover_(handover) {
      const auto address = reinterpret_cast<uint64_t>(data);
      isOfOwn_ = handover_.ifOwn(memory, address, bytes, [&] {
        handover_.uses_.push_front({address, bytes});
        place_ = handover_.uses_.begin();
      });
    }
    ~Use() {
      if (!isOfOwn_) return;
      const std::lock_guard lock(handover_.mutex_);
      handover_.uses_.erase(place_);
      handover_.changed_.notifyAll();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    bool isOfOwn() const { return isOfOwn_; }

   private:
    Handover& handover_;
    std::list<Range>::iterator place_;
    bool isOfOwn_ = false;
  };

  /// The handover of one run, from its constructor to its destructor. There is at most one at a time.
  class Turn {
   public:
    /// `mayBegin` is called when no new operation can begin that relies on the run belonging to this process alone.
    template <typename MayBegin>
    Turn(Handover& handover, const MemoryRun& run, MayBegin&& mayBegin) : handover_(handover) {
      const std::lock_guard lock(handover_.mutex_);
      hasBegun_ = mayBegin();
      if (hasBegun_) handover_.run_ = {run.address, run.bytes};
    }
    ~Turn() {
      if (!hasBegun_) return;
      const std::lock_guard lock(handover_.mutex_);
      handover_.run_.reset();
      handover_.changed_.notifyAll();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    bool hasBegun() const { return hasBegun_; }
    /// Waits, for a limited time, until no call uses the run: calls may wait for this thread. Returns whether none
    /// does.
    bool awaitUses() const;

   private:
    Handover& handover_;
    bool hasBegun_ = false;
  };

 private:
  std::mutex mutex_;
  Condition changed_;
  std::optional<Range> run_;  ///< the run that is being handed over
  std::list<Range> uses_;
};

}  // namespace millpond::client
