// SPDX-License-Identifier: Apache-2.0
// Positions in streams: events of a pool, recorded behind the work that a stream has so far.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/core/contexts.h"
#include "worker/core/handle_map.h"
#include "worker/core/open_captures.h"

namespace millpond::worker {

/// An event of the pool of its context; none if that context has ended, which counts as reached.
struct Mark {
  CUevent event = nullptr;
  uint16_t context = 0;
  std::shared_ptr<Mark> shared = nullptr;  ///< returns the event to the pool, if several waits may have the mark

  /// The context has ended, and its events with it.
  void forgetContext(uint16_t number) {
    if (context == number) event = nullptr;
    if (shared) shared->forgetContext(number);
  }
};

class Marks {
 public:
  Marks(const Driver& driver, Contexts& contexts, HandleMap& handles, const OpenCaptures& captures)
      : driver_(driver), contexts_(contexts), handles_(handles), captures_(captures) {}

  /// Records an event of the pool behind the stream's work so far. For the default stream call it directly after work: later work
  /// of blocking streams waits for the event, and the event for theirs.
  CUresult mark(const Stream& stream, Mark& mark);
  /// Records marks behind everything that a synchronization of the stream waits for. This gives no other stream anything to wait
  /// for.
  CUresult ends(const Stream& stream, std::vector<Mark>& marks);
  /// Records marks behind all work of the streams of one context, or of all (0). With 0, failed contexts are skipped,
  /// because nothing runs there any more. `withDestroyed`: behind that of destroyed streams, too.
  CUresult fence(uint16_t context, std::vector<Mark>& marks, bool withDestroyed = true);
  /// Whether all streams are done, so that a driver call that waits for the device returns immediately. False during a
  /// capture, when streams must not be queried. Records nothing.
  bool areStreamsDone();
  /// The default stream of that context is about to get work for which later work of blocking streams, marks included,
  /// will wait. Records where these streams end now.
  void keepEnds(uint16_t context);
  /// The end of a blocking stream that has had no work since the default stream had; null otherwise. A mark recorded
  /// now would be reached only after the default stream's work.
  std::shared_ptr<const Mark> endOf(uint64_t stream) const;
  void forgetEnd(uint64_t stream) { ends_.erase(stream); }
  /// The default stream of that context gets work.
  void noteDefaultWork(uint16_t context) {
    if (context == 0) return;
    if (context != lastDefault_.first) lastDefault_ = {context, &defaultEnds_[context]};
    lastDefault_.second->isFresh = hasFreshDefault_ = true;
  }
  /// Whether a default stream has had work since its end was last recorded.
  bool hasFreshDefault() const { return hasFreshDefault_; }
  /// A blocking stream is about to get work, for which later work of the default stream will wait, events included. Records
  /// where default streams end now.
  void keepDefaultEnds();
  /// The stream is about to be destroyed. Returns whether it has work that continues: until that is done the driver keeps the
  /// stream, and it counts.
  bool keepDestroyed(const Stream& stream, bool isBlocking);
  /// The number of such streams.
  size_t destroyed() const { return destroyed_.size(); }
  /// Forgets those whose work is done.
  void settleDestroyed();
  void forgetContext(uint16_t number) {
    for (auto& [stream, end] : ends_) end->forgetContext(number);
    for (auto& each : destroyed_) each.end.forgetContext(number);
    std::erase_if(destroyed_, [&](const Destroyed& each) { return each.context == number; });
    if (const auto found = defaultEnds_.find(number); found != defaultEnds_.end()) {
      found->second.mark.forgetContext(number);
      defaultEnds_.erase(found);
    }
    if (lastDefault_.first == number) lastDefault_ = {};
  }
  /// Whether the mark was reached: CUDA_ERROR_NOT_READY, success or the context's failure. Queried in the event's own
  /// context, so that the failure of another context does not hide the result.
  CUresult happened(const Mark& mark) {
    if (!mark.event) return CUDA_SUCCESS;
    if (mark.context != contexts_.bound()) contexts_.use(mark.context);
    return driver_.cuEventQuery(mark.event);
  }
  /// Whether nothing awaits the mark any more; leaves the bound context unchanged.
  bool isOver(const Mark& mark) {
    const uint16_t before = contexts_.bound();
    const bool over = happened(mark) != CUDA_ERROR_NOT_READY;
    if (before) contexts_.use(before);
    return over;
  }
  /// Whether all were reached.
  CUresult state(const std::vector<Mark>& marks);
  /// Returns the event to the pool.
  void giveBack(const Mark& mark);
  void giveBack(const std::vector<Mark>& marks);

 private:
  /// Where the work of a default stream ends, if blocking streams have had work since.
  struct DefaultEnd {
    Mark mark;
    bool isFresh = false;  ///< it has had work since
  };
  /// Where the work of a destroyed stream ends.
  struct Destroyed {
    Mark end;
    uint16_t context;
    bool isBlocking;
  };

  CUresult takeEvent(uint16_t context, Mark& mark);
  CUresult record(const Stream& stream, CUevent event);
  Mark share(const Mark& mark);
  /// Adds the ends of destroyed streams of one context, or of all (0), whose work continues.
  void addDestroyed(uint16_t context, bool blockingOnly, std::vector<Mark>& marks);
  /// Records where the default stream ends.
  void keep(uint16_t context, DefaultEnd& end);
  /// A mark where the default stream ends: if blocking streams have had work since, the one that was recorded before.
  CUresult markDefaultEnd(const Stream& stream, Mark& mark);

  const Driver& driver_;
  Contexts& contexts_;
  HandleMap& handles_;
  const OpenCaptures& captures_;
  /// By stream. Waits for the same mark share it; the event returns to the pool after the last one.
  std::unordered_map<uint64_t, std::shared_ptr<Mark>> ends_;
  std::unordered_map<uint16_t, DefaultEnd> defaultEnds_;  ///< by context
  std::pair<uint16_t, DefaultEnd*> lastDefault_;          ///< the one whose stream had work last
  bool hasFreshDefault_ = false;
  std::vector<Destroyed> destroyed_;
};

}  // namespace millpond::worker
