// SPDX-License-Identifier: Apache-2.0
#include "worker/core/marks.h"

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
  if (mark.event) contexts_.at(mark.context).pool.push_back(mark.event);
}

void Marks::giveBack(const std::vector<Mark>& marks) {
  for (const Mark& each : marks) giveBack(each);
}

CUstream Marks::placeBehind(const Stream& stream) const {
  // In the default stream an event would come after what blocking streams have got since, and before all that they get from now on.
  // The default stream of this thread, which the program does not have, only follows it. The driver keeps one for each context.
  const bool isDisturbed = !stream.handle && handles_.hasOpen() && contexts_.homeOf(stream.context) == stream.context;
  return isDisturbed ? CU_STREAM_PER_THREAD : stream.handle;
}

CUresult Marks::mark(const Stream& stream, Mark& mark) {
  // Pieces of copies are issued after the command that named the stream.
  if (stream.wire)
    if (HandleMap::Entry* entry = handles_.find(HandleKind::kStream, stream.wire)) handles_.touch(*entry);
  if (CUresult rc = takeEvent(stream.context, mark)) return rc;
  // The default stream is the current context's.
  const uint16_t before = contexts_.bound();
  if (!stream.handle) contexts_.use(stream.context);
  const CUresult rc = driver_.cuEventRecord(mark.event, placeBehind(stream));
  contexts_.use(before);
  if (rc) giveBack(mark);
  return rc;
}

CUresult Marks::ends(const Stream& stream, std::vector<Mark>& marks) {
  CUresult result = CUDA_SUCCESS;
  const auto add = [&](const Stream& each) {
    Mark place;
    if (!result) result = mark(each, place);
    if (!result) marks.push_back(place);
    return true;
  };
  add(stream);
  // What the others have was there before the default stream's last work.
  if (!stream.handle && placeBehind(stream))
    handles_.eachOpen([&](const HandleMap::Entry& entry) {
      const Stream each{static_cast<CUstream>(entry.object), entry.context, entry.wire};
      const bool isCaptured = !captures_.empty() && captures_.status(each) != CU_STREAM_CAPTURE_STATUS_NONE;
      return contexts_.homeOf(entry.context) != stream.context || isCaptured || add(each);
    });
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
    ends_[entry.wire] = {new Mark(end), [this](Mark* each) {
                           giveBack(*each);
                           delete each;
                         }};
    return false;
  });
}

std::shared_ptr<const Mark> Marks::endOf(uint64_t stream) const {
  const auto found = ends_.find(stream);
  const HandleMap::Entry* entry = handles_.find(stream);
  return found == ends_.end() || !entry || entry->isOpen ? nullptr : found->second;
}

CUresult Marks::fence(uint16_t context, std::vector<Mark>& marks) {
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
    const CUresult marked = mark(stream, place);
    if (marked && context == 0) return true;
    result = marked;
    if (!result) marks.push_back(place);
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
  return areDone;
}

}  // namespace millpond::worker
