// SPDX-License-Identifier: Apache-2.0
// Positions in streams: events of a pool, recorded behind the work that a stream has so far.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker/core/contexts.h"
#include "worker/core/handle_map.h"
#include "worker/core/open_captures.h"

namespace millpond::worker {

/// An event of the pool of its context; none if that context has ended, which counts as reached.
struct Mark {
  CUevent event = nullptr;
  uint16_t context = 0;

  /// The context has ended, and its events with it.
  void forgetContext(uint16_t number) {
    if (context == number) event = nullptr;
  }
};

class Marks {
 public:
  Marks(const Driver& driver, Contexts& contexts, HandleMap& handles, const OpenCaptures& captures)
      : driver_(driver), contexts_(contexts), handles_(handles), captures_(captures) {}

  /// Records an event of the pool behind the stream's work so far. This gives later work of other streams nothing to wait for.
  CUresult mark(const Stream& stream, Mark& mark);
  /// Records marks behind everything that a synchronization of the stream waits for.
  CUresult ends(const Stream& stream, std::vector<Mark>& marks);
  /// Records marks behind all work of the streams of one context, or of all (0). With 0, failed contexts are skipped,
  /// because nothing runs there any more.
  CUresult fence(uint16_t context, std::vector<Mark>& marks);
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
  void forgetContext(uint16_t number) {
    for (auto& [stream, end] : ends_) end->forgetContext(number);
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
  CUresult takeEvent(uint16_t context, Mark& mark);
  /// The stream in which an event is recorded behind that stream's work.
  CUstream placeBehind(const Stream& stream) const;

  const Driver& driver_;
  Contexts& contexts_;
  HandleMap& handles_;
  const OpenCaptures& captures_;
  /// By stream. Waits for the same mark share it; the event returns to the pool after the last one.
  std::unordered_map<uint64_t, std::shared_ptr<Mark>> ends_;
};

}  // namespace millpond::worker
