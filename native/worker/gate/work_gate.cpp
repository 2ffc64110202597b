// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/work_gate.h"

#include <algorithm>
#include <set>

namespace millpond::worker::gate {
namespace {

/// On a card a record with timing takes a place in the queue of its stream, which has 1,021 of them, and one without
/// takes none (measured on an H100). Programs leave 61 places free while functions of theirs are pending (`kPlaces` of
/// the client's QueueBound): if the driver blocked this thread in such a queue, the session would deadlock.
constexpr size_t mostMeasured(Lane lane) { return lane == Lane::kCompute ? 20 : 5; }
static_assert(2 * (mostMeasured(Lane::kCompute) + mostMeasured(Lane::kToDevice) + mostMeasured(Lane::kFromDevice)) <=
              61);

}  // namespace

// Marks

std::vector<CUevent>& WorkGate::spares(uint16_t context, Timing timing) {
  Events& events = events_[context];
  return timing == Timing::kOn ? events.spare : events.spareMarks;
}

CUevent WorkGate::take(uint16_t context, Timing timing) {
  auto& spare = spares(context, timing);
  if (!spare.empty()) {
    const CUevent event = spare.back();
    spare.pop_back();
    return event;
  }
  CUevent event = nullptr;
  const unsigned flags = timing == Timing::kOn ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  return driver_.cuEventCreate(&event, flags) == CUDA_SUCCESS ? event : nullptr;
}

CUevent WorkGate::record(const Place& place, Timing timing) {
  if (!useContext_(place.context)) return nullptr;
  const CUevent event = take(place.context, timing);
  if (!event || driver_.cuEventRecord(event, place.stream) == CUDA_SUCCESS) return event;
  spares(place.context, timing).push_back(event);
  return nullptr;
}

bool WorkGate::canMeasure() const { return measured_ < mostMeasured(lane_); }

void WorkGate::end(Span& span) {
  if (!span.end) span.end = record(span.place, span.begin ? Timing::kOn : Timing::kOff);
}

void WorkGate::giveBack(const Span& span) {
  if (span.begin) --measured_;
  if (span.begin) spares(span.place.context, Timing::kOn).push_back(span.begin);
  if (span.end) spares(span.place.context, span.begin ? Timing::kOn : Timing::kOff).push_back(span.end);
}

void WorkGate::endSpans() {
  for (Span& span : open_.spans) end(span);
}

void WorkGate::endSpansBefore(const Place& place) {
  for (Span& span : open_.spans) {
    const bool isHere = span.place.stream == place.stream && span.place.context == place.context;
    if (isHere || !place.stream || !span.place.stream) end(span);
  }
}

void WorkGate::before(const Place& place) {
  Span* found = nullptr;
  for (Span& span : open_.spans) {
    if (span.end) continue;
    const bool isHere = span.place.stream == place.stream && span.place.context == place.context;
    if (isHere) found = &span;
    // A mark in the default stream is a barrier for the others: it must directly follow the work that it marks.
    if (!isHere && !span.place.stream) end(span);
  }
  if (found) return;
  if (!canMeasure()) {
    open_.spans.push_back({place});
  } else if (const CUevent begin = record(place, Timing::kOn)) {
    open_.spans.push_back({place, begin});
    ++measured_;
  }
}

void WorkGate::after(const Work& work, bool isMade, bool endsNow, int64_t now) {
  if (endsNow) endSpans();
  if (!isMade) return;
  const auto expectedNs = history_.expected(work);
  session_->issued(expectedNs, now);
  if (!open_.done.empty() && open_.done.back().work.what == work.what && open_.done.back().work.shape == work.shape)
    ++open_.done.back().count;
  else
    open_.done.push_back({work, expectedNs.value_or(0)});
  if (!expectedNs || session_->openNs() >= session_->batchNs()) close(now);
}

void WorkGate::close(int64_t now) {
  if (!session_->hasOpen()) {
    // The driver accepted none of it.
    if (open_.spans.empty()) return;
    endSpans();
    for (const Span& span : open_.spans) giveBack(span);
    open_ = {};
    return;
  }
  endSpans();
  open_.number = session_->close(now);
  flights_.push_back(std::move(open_));
  open_ = {};
}

bool WorkGate::admit(const Work& work, int64_t now) {
  if (session_->admit(history_.expected(work), now)) return true;
  close(now);
  return false;
}

// Completed work

bool WorkGate::hasLanded(const Batch& batch) {
  for (auto span = batch.spans.rbegin(); span != batch.spans.rend(); ++span) {
    // A failed context reports its failure, and nothing runs there any more.
    if (span->end && useContext_(span->place.context) && driver_.cuEventQuery(span->end) == CUDA_ERROR_NOT_READY)
      return false;
  }
  return true;
}

bool WorkGate::progress(int64_t now, bool hasWork) {
  bool some = false;
  for (auto batch = flights_.begin(); batch != flights_.end();) {
    if (!hasLanded(*batch)) {
      ++batch;
      continue;
    }
    land(*batch, now);
    batch = flights_.erase(batch);
    some = true;
  }
  session_->look(now, hasWork);
  return some;
}

void WorkGate::land(Batch& batch, int64_t now) {
  const auto measured = measure(batch);
  const int64_t used = session_->landed(batch.number, measured, now);
  // Otherwise `used` is the time between other work, in which the batch may have waited.
  if (measured) history_.learn(batch.done, used);
  for (Span& span : batch.spans) {
    // The end of the measured work is kept, and the previous one is free.
    if (span.begin && span.end) std::swap(events_[span.place.context].frontier, span.end);
    giveBack(span);
  }
}

std::optional<double> WorkGate::elapsed(CUevent from, CUevent to) const {
  float ms = 0;
  // The driver's handle has changed.
  CUresult rc = driver_.cuEventElapsedTime_v2(&ms, from, to);
  if (rc == CUDA_ERROR_NOT_SUPPORTED) rc = driver_.cuEventElapsedTime(&ms, from, to);
  if (rc) return std::nullopt;
  return ms;
}

std::optional<int64_t> WorkGate::measure(const Batch& batch) {
  std::set<uint16_t> contexts;
  for (const Span& span : batch.spans) contexts.insert(span.place.context);
  // A GPU works for one context at a time.
  double ms = 0;
  for (const uint16_t context : contexts) {
    const auto part = useContext_(context) ? measure(batch, context) : std::nullopt;
    if (!part) return std::nullopt;
    ms += *part;
  }
  if (contexts.empty()) return std::nullopt;
  return static_cast<int64_t>(ms * 1e6);
}

std::optional<double> WorkGate::measure(const Batch& batch, uint16_t context) {
  CUevent origin = nullptr;
  std::vector<Interval> intervals;
  for (const Span& span : batch.spans) {
    if (span.place.context != context) continue;
    if (!span.begin || !span.end) return std::nullopt;
    if (!origin) origin = span.begin;
    const auto from = elapsed(origin, span.begin);
    const auto to = elapsed(origin, span.end);
    if (!from || !to) return std::nullopt;
    intervals.push_back({*from, *to});
  }
  // Parallel streams share their time: the part that was measured before is not counted again.
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.from < b.from; });
  double reached = intervals.front().from;
  if (const CUevent frontier = events_[context].frontier) {
    const auto since = elapsed(frontier, origin);
    if (!since) return std::nullopt;
    reached = std::max(reached, -*since);
  }
  double sum = 0;
  for (const Interval& each : intervals) {
    sum += std::max(each.to - std::max(each.from, reached), 0.0);
    reached = std::max(reached, each.to);
  }
  return sum;
}

void WorkGate::abandon(int64_t now) {
  if (awaits()) close(now);
  for (const Batch& batch : flights_) {
    const bool hasBegun = std::any_of(batch.spans.begin(), batch.spans.end(), [&](const Span& span) {
      // Work that waited in its stream used no time of the GPU.
      return span.begin && useContext_(span.place.context) && driver_.cuEventQuery(span.begin) == CUDA_SUCCESS;
    });
    if (hasBegun) session_->abandon(batch.number, now);
  }
}

void WorkGate::forget(uint16_t context) {
  const auto isThere = [&](const Span& span) {
    if (span.place.context != context) return false;
    if (span.begin) --measured_;
    return true;
  };
  for (Batch& batch : flights_) std::erase_if(batch.spans, isThere);
  std::erase_if(open_.spans, isThere);
  events_.erase(context);
}

}  // namespace millpond::worker::gate
