// SPDX-License-Identifier: Apache-2.0
#include "worker/core/synchronous_copies.h"

#include <algorithm>

namespace millpond::worker {

bool SynchronousCopies::isDone() {
  if (!marks_.isOver(last_->mark)) return false;
  marks_.giveBack(last_->mark);
  last_.reset();
  return true;
}

void SynchronousCopies::issued(const Stream& stream) {
  // The stream had no work except for such copies.
  if (last_ && !isDone()) {
    if (last_->stream.context != stream.context || last_->stream.wire != stream.wire)
      driver_.cuStreamWaitEvent(stream.handle, last_->mark.event, 0);
    marks_.giveBack(last_->mark);
    last_.reset();
  }
  Mark mark;
  if (marks_.mark(stream, mark) == CUDA_SUCCESS) last_ = Copy{mark, stream, ++copies_};
  settle(stream, worksOf(stream));
}

void SynchronousCopies::settle(const Stream& stream, const StreamWorks& works) {
  HandleMap::Entry* entry = entryOf(stream);
  if (!entry && settledContext_ != stream.context) settled_ = {};
  if (!entry) settledContext_ = stream.context;
  StreamWorks& settled = entry ? entry->settled : settled_;
  settled = {std::max(settled.own, works.own), std::max(settled.byDefault, works.byDefault)};
}

bool SynchronousCopies::isSettled(const Stream& stream, uint64_t works) {
  const HandleMap::Entry* entry = entryOf(stream);
  const StreamWorks given = handles_.worksOf(entry);
  const StreamWorks ofDefault = settledContext_ == stream.context ? settled_ : StreamWorks{};
  if (!entry) return given.own == ofDefault.own + works;
  return given.own == entry->settled.own + works &&
         given.byDefault <= std::max(entry->settled.byDefault, ofDefault.byDefault);
}

void SynchronousCopies::begin(const Stream& stream, uint64_t copy) {
  if (begun_.size() < kMostBegun && orders(stream, 0)) begun_.push_back({copy, stream.wire});
}

void SynchronousCopies::end(const Stream& stream, uint64_t copy) {
  const auto found = std::find_if(begun_.begin(), begun_.end(),
                                  [&](const Begun& each) { return each.copy == copy && each.stream == stream.wire; });
  if (found == begun_.end()) return;
  begun_.erase(found);
  issued(stream);
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
