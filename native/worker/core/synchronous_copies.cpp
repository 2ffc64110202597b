// SPDX-License-Identifier: Apache-2.0
#include "worker/core/synchronous_copies.h"

namespace millpond::worker {

bool SynchronousCopies::isDone() {
  if (!marks_.isOver(last_->mark)) return false;
  marks_.giveBack(last_->mark);
  last_.reset();
  return true;
}

void SynchronousCopies::issued(const Stream& stream) {
  // The stream had no work but this copy.
  if (last_ && !isDone()) {
    if (last_->stream.context != stream.context || last_->stream.wire != stream.wire)
      driver_.cuStreamWaitEvent(stream.handle, last_->mark.event, 0);
    marks_.giveBack(last_->mark);
    last_.reset();
  }
  Mark mark;
  if (marks_.mark(stream, mark) == CUDA_SUCCESS) last_ = Copy{mark, stream, ++copies_};
}

void SynchronousCopies::order(const Stream& stream, HandleMap::Entry& entry) {
  if (entry.orderedBehind == last_->number || isDone()) return;
  const bool isOfDriver = last_->stream.wire == 0 && entry.isBlocking &&
                          contexts_.homeOf(last_->stream.context) == contexts_.homeOf(stream.context);
  if (isOfDriver || last_->stream.wire == stream.wire) return;
  // A capture only records the work.
  if (captures_.status(stream) != CU_STREAM_CAPTURE_STATUS_NONE) return;
  if (driver_.cuStreamWaitEvent(stream.handle, last_->mark.event, 0) == CUDA_SUCCESS)
    entry.orderedBehind = last_->number;
}

}  // namespace millpond::worker
