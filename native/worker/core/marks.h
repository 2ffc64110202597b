// SPDX-License-Identifier: Apache-2.0
// Places in streams: events of a pool, recorded behind what a stream was given so far.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker/core/contexts.h"
#include "worker/core/handle_map.h"
#include "worker/core/open_captures.h"

namespace millpond::worker {

/// An event of the pool of its context; none when that context has ended, which is as good as happened.
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

  /// Records an event of the pool behind what the stream was given so far.
  CUresult mark(const Stream& stream, Mark& mark);
  /// Marks behind everything that the streams of one context, or of all (0), were given so far. With 0, contexts that have
  /// failed are left out: nothing runs there any more.
  CUresult fence(uint16_t context, std::vector<Mark>& marks);
  /// The default stream of that context is about to be given work, which whatever blocking streams are given next waits
  /// for, marks too. Keeps where these streams end now.
  void keepEnds(uint16_t context);
  /// Where a blocking stream ends, if it was given nothing since the default stream was given work; null otherwise. A mark
  /// that were recorded now would be reached only when the default stream has done that work.
  std::shared_ptr<const Mark> endOf(uint64_t stream) const;
  void forgetEnd(uint64_t stream) { ends_.erase(stream); }
  void forgetContext(uint16_t number) {
    for (auto& [stream, end] : ends_) end->forgetContext(number);
  }
  /// Whether the mark was reached: CUDA_ERROR_NOT_READY, success or the context's failure. Asked in the event's own
  /// context, which the answer of another one that has failed does not hide.
  CUresult happened(const Mark& mark) {
    if (!mark.event) return CUDA_SUCCESS;
    if (mark.context != contexts_.bound()) contexts_.use(mark.context);
    return driver_.cuEventQuery(mark.event);
  }
  /// Whether all were reached.
  CUresult state(const std::vector<Mark>& marks);
  /// The event is at rest again.
  void giveBack(const Mark& mark);
  void giveBack(const std::vector<Mark>& marks);

 private:
  CUresult takeEvent(uint16_t context, Mark& mark);

  const Driver& driver_;
  Contexts& contexts_;
  HandleMap& handles_;
  const OpenCaptures& captures_;
  /// By stream. What waits for one of them shares it; the event is at rest again when none does.
  std::unordered_map<uint64_t, std::shared_ptr<Mark>> ends_;
};

}  // namespace millpond::worker
