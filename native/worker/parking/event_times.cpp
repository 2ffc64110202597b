// SPDX-License-Identifier: Apache-2.0
#include "worker/parking/event_times.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <vector>

namespace millpond::worker {
namespace {

uint64_t unixNs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

CUresult EventTimes::happened(uint64_t event, uint16_t context, Moment at) {
  Anchor& anchor = anchors_[context];
  if (!anchor.event) {
    if (const CUresult rc = driver_.cuEventCreate(&anchor.event, CU_EVENT_DEFAULT)) return rc;
    if (const CUresult rc = driver_.cuEventRecord(anchor.event, nullptr)) return rc;
    if (const CUresult rc = driver_.cuEventSynchronize(anchor.event)) return rc;
    anchor.atNs = unixNs();
  }
  happened_[event] = at;
  return CUDA_SUCCESS;
}

bool EventTimes::note(HandleMap& handles, uint16_t context) {
  struct Recorded {
    uint64_t wire;
    CUevent event;
    float beforeMs;
  };
  std::vector<Recorded> recorded;
  bool isTold = true;
  handles.eachOf(context, [&](const HandleMap::Entry& entry) {
    if (handle::kind(entry.wire) != HandleKind::kEvent || !entry.object) return;
    const auto event = static_cast<CUevent>(entry.object);
    // An event whose last recording was in a capture reports that when queried.
    if (driver_.cuEventQuery(event) == CUDA_ERROR_CAPTURED_EVENT) isTold = false;
    float none = 0;
    if (driver_.cuEventElapsedTime(&none, event, event) == CUDA_SUCCESS) recorded.push_back({entry.wire, event, 0});
  });
  if (recorded.empty() || !isTold) return isTold;
  CUevent now = nullptr;
  bool isKnown = driver_.cuEventCreate(&now, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
                 driver_.cuEventRecord(now, nullptr) == CUDA_SUCCESS && driver_.cuEventSynchronize(now) == CUDA_SUCCESS;
  uint64_t parkedNs = unixNs();
  // By the clock used before this session.
  if (const auto anchor = anchors_.find(context); anchor != anchors_.end()) {
    float ms = 0;
    isKnown = isKnown && driver_.cuEventElapsedTime(&ms, anchor->second.event, now) == CUDA_SUCCESS;
    parkedNs = anchor->second.atNs + static_cast<uint64_t>(std::llround(static_cast<double>(ms) * 1e6));
  }
  for (Recorded& each : recorded)
    isKnown = isKnown && driver_.cuEventElapsedTime(&each.beforeMs, each.event, now) == CUDA_SUCCESS;
  std::sort(recorded.begin(), recorded.end(),
            [](const Recorded& a, const Recorded& b) { return a.beforeMs < b.beforeMs; });
  // From each to the next, as precisely as possible: the driver rounds times from old events.
  CUevent next = now;
  double beforeMs = 0;
  for (const Recorded& each : recorded) {
    float ms = 0;
    isKnown = isKnown && driver_.cuEventElapsedTime(&ms, each.event, next) == CUDA_SUCCESS;
    beforeMs += static_cast<double>(ms);
    next = each.event;
    happened_[each.wire] = {parkedNs, -beforeMs};
  }
  if (now) driver_.cuEventDestroy_v2(now);
  return isKnown;
}

CUresult EventTimes::find(const HandleMap::Entry& event, Moment& at) const {
  const auto anchor = anchors_.find(event.context);
  if (anchor == anchors_.end()) return CUDA_ERROR_INVALID_HANDLE;
  float since = 0;
  const CUresult recorded =
      driver_.cuEventElapsedTime(&since, anchor->second.event, static_cast<CUevent>(event.object));
  const auto before = happened_.find(event.wire);
  if (recorded == CUDA_ERROR_INVALID_HANDLE && before != happened_.end()) {
    at = before->second;
    return CUDA_SUCCESS;
  }
  at = {anchor->second.atNs, static_cast<double>(since)};
  return recorded;
}

CUresult EventTimes::between(const HandleMap::Entry& start, const HandleMap::Entry& end, float& ms) const {
  Moment from, to;
  if (const CUresult rc = find(start, from)) return rc;
  if (const CUresult rc = find(end, to)) return rc;
  // Between different sessions the hosts' clocks are used, which may differ.
  const double between = static_cast<double>(static_cast<int64_t>(to.unixNs - from.unixNs)) / 1e6;
  ms = static_cast<float>(to.ms - from.ms + between);
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
