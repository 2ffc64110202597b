// SPDX-License-Identifier: Apache-2.0
#include "worker/core/marks.h"

#include <algorithm>

namespace millpond::worker {

CUresult Marks::state(const std::vector<Mark>& marks) {
  for (const Mark& each : marks)
    if (CUresult rc = happened(each)) return rc;
  return CUDA_SUCCESS;
}

CUresult Marks::takeEvent(uint16_t context, Mark& mark) {
  context = contexts_.homeOf(context);
  auto& pool = contexts_.at(context).pool;
  mark.context = context;
  if (!pool.empty()) {
    mark.event = pool.back();
    pool.pop_back();
    return CUDA_SUCCESS;
  }
  const uint16_t before = contexts_.bound();
  if (!contexts_.use(context)) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult rc = driver_.cuEventCreate(&mark.event, CU_EVENT_DISABLE_TIMING);
  contexts_.use(before);
  return rc;
}

void Marks::giveBack(const Mark& mark) {
  if (mark.event && !mark.shared) contexts_.at(mark.context).pool.push_back(mark.event);
}

void Marks::giveBack(const std::vector<Mark>& marks) {
  for (const Mark& each : marks) giveBack(each);
}

Mark Marks::share(const Mark& mark) {
  return {mark.event, mark.context, {new Mark(mark), [this](Mark* each) {
                                       giveBack(*each);
                                       delete each;
                                     }}};
}

CUresult Marks::record(const Stream& stream, CUevent event) {
  // The default stream is the current context's.
  const uint16_t before = contexts_.bound();
  if (!stream.handle) contexts_.use(stream.context);
  const CUresult rc = driver_.cuEventRecord(event, stream.handle);
  contexts_.use(before);
  return rc;
}

CUresult Marks::mark(const Stream& stream, Mark& mark) {
  // Pieces of copies are issued after the command that named the stream.
  if (stream.wire)
    if (HandleMap::Entry* entry = handles_.find(HandleKind::kStream, stream.wire)) handles_.touch(*entry);
  if (CUresult rc = takeEvent(stream.context, mark)) return rc;
  const CUresult rc = record(stream, mark.event);
  if (rc) giveBack(mark);
  if (!rc && !stream.handle && handles_.hasOpen()) keep(stream.context, defaultEnds_[stream.context]);
  return rc;
}

void Marks::keep(uint16_t context, DefaultEnd& end) {
  // A wait that has the mark continues with the event as it was recorded.
  if (!end.mark.event || end.mark.shared.use_count() > 1) {
    Mark fresh;
    if (takeEvent(context, fresh) != CUDA_SUCCESS) return;
    end.mark = share(fresh);
  }
  end.isFresh = record({nullptr, context, 0}, end.mark.event) != CUDA_SUCCESS;
}

void Marks::keepDefaultEnds() {
  // During a capture the default streams must not be used.
  if (!captures_.empty()) return;
  hasFreshDefault_ = false;
  for (auto& [context, end] : defaultEnds_)
    if (end.isFresh) keep(context, end);
}

CUresult Marks::markDefaultEnd(const Stream& stream, Mark& mark) {
  const auto found = defaultEnds_.find(stream.context);
  if (!handles_.hasOpen() || (found != defaultEnds_.end() && found->second.isFresh)) return this->mark(stream, mark);
  if (found != defaultEnds_.end() && !isOver(found->second.mark)) mark = found->second.mark;
  return CUDA_SUCCESS;
}

bool Marks::keepDestroyed(const Stream& stream, bool isBlocking) {
  if (!captures_.empty() && captures_.status(stream) != CU_STREAM_CAPTURE_STATUS_NONE) return false;
  Mark end;
  if (driver_.cuStreamQuery(stream.handle) != CUDA_ERROR_NOT_READY || mark(stream, end) != CUDA_SUCCESS) return false;
  destroyed_.push_back({share(end), stream.context, isBlocking});
  return true;
}

void Marks::settleDestroyed() {
  std::erase_if(destroyed_, [&](const Destroyed& each) {
    const bool over = isOver(each.end);
    if (!over || each.context == 0) return over;
    // None is left if the context ended first.
    if (uint32_t& streams = contexts_.at(each.context).streams; streams != 0) --streams;
    return true;
  });
}

void Marks::addDestroyed(uint16_t context, bool blockingOnly, std::vector<Mark>& marks) {
  settleDestroyed();
  for (const Destroyed& each : destroyed_)
    if ((context == 0 || each.end.context == contexts_.homeOf(context)) && (each.isBlocking || !blockingOnly))
      marks.push_back(each.end);
}

CUresult Marks::ends(const Stream& stream, std::vector<Mark>& marks) {
  CUresult result = CUDA_SUCCESS;
  const auto add = [&](const Stream& each) {
    Mark place;
    if (!result) result = each.handle ? mark(each, place) : markDefaultEnd(each, place);
    if (!result && place.event) marks.push_back(place);
    return true;
  };
  add(stream);
  // All work of the other blocking streams precedes the last work of the default stream.
  if (!stream.handle)
    handles_.eachOpen([&](const HandleMap::Entry& entry) {
      const Stream each{static_cast<CUstream>(entry.object), entry.context, entry.wire};
      const bool isCaptured = !captures_.empty() && captures_.status(each) != CU_STREAM_CAPTURE_STATUS_NONE;
      return contexts_.homeOf(entry.context) != contexts_.homeOf(stream.context) || isCaptured || add(each);
    });
  if (!stream.handle) addDestroyed(stream.context, true, marks);
  if (result) {
    giveBack(marks);
    marks.clear();
  }
  return result;
}

void Marks::keepEnds(uint16_t context) {
  handles_.eachOpen([&](const HandleMap::Entry& entry) {
    const Stream stream{static_cast<CUstream>(entry.object), entry.context, entry.wire};
    if (contexts_.homeOf(entry.context) != contexts_.homeOf(context)) return true;
    if (!captures_.empty() && captures_.status(stream) != CU_STREAM_CAPTURE_STATUS_NONE) return true;
    Mark end;
    if (mark(stream, end) != CUDA_SUCCESS) return true;
    ends_[entry.wire] = share(end).shared;
    return false;
  });
}

std::shared_ptr<const Mark> Marks::endOf(uint64_t stream) const {
  const auto found = ends_.find(stream);
  const HandleMap::Entry* entry = handles_.find(stream);
  return found == ends_.end() || !entry || entry->isOpen ? nullptr : found->second;
}

CUresult Marks::fence(uint16_t context, std::vector<Mark>& marks, bool withDestroyed) {
  CUresult result = CUDA_SUCCESS;
  // Returns whether the stream may still have work.
  const auto add = [&](const Stream& stream) {
    // A stream that is being captured must not be queried, nor the default streams during a capture.
    if (result || (!captures_.empty() && (!stream.handle || captures_.status(stream) != CU_STREAM_CAPTURE_STATUS_NONE)))
      return true;
    const CUresult now = driver_.cuStreamQuery(stream.handle);
    if (now == CUDA_SUCCESS) return false;
    if (now != CUDA_ERROR_NOT_READY) {
      if (context != 0) result = now;
      return true;
    }
    Mark place;
    const CUresult marked = stream.handle ? mark(stream, place) : markDefaultEnd(stream, place);
    if (marked && context == 0) return true;
    result = marked;
    if (!result && place.event) marks.push_back(place);
    return true;
  };
  const uint16_t before = contexts_.bound();
  for (uint16_t c = 1; c <= contexts_.size(); ++c)
    if ((context == 0 || context == c || context == contexts_.homeOf(c)) && contexts_.use(c)) add({nullptr, c, 0});
  contexts_.use(before);
  // A stream that was found idle has no work until a command names it again: programs keep many unused streams.
  handles_.eachTouched([&](const HandleMap::Entry& entry) {
    const bool isMeant = context == 0 || context == entry.context || context == contexts_.homeOf(entry.context);
    return !isMeant || add({static_cast<CUstream>(entry.object), entry.context, entry.wire});
  });
  if (withDestroyed) addDestroyed(context, false, marks);
  if (result) {
    giveBack(marks);
    marks.clear();
  }
  return result;
}

bool Marks::areStreamsDone() {
  if (!captures_.empty()) return false;
  bool areDone = true;
  const auto isBusy = [&](CUstream stream) {
    const bool busy = driver_.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    areDone = areDone && !busy;
    return busy;
  };
  const uint16_t before = contexts_.bound();
  for (uint16_t c = 1; areDone && c <= contexts_.size(); ++c)
    if (contexts_.use(c)) isBusy(nullptr);
  contexts_.use(before);
  handles_.eachTouched(
      [&](const HandleMap::Entry& entry) { return !areDone || isBusy(static_cast<CUstream>(entry.object)); });
  return areDone &&
         std::all_of(destroyed_.begin(), destroyed_.end(), [&](const Destroyed& each) { return isOver(each.end); });
}

}  // namespace millpond::worker
