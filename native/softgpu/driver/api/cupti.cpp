// SPDX-License-Identifier: Apache-2.0
// Entry points: CUPTI's Activity API, as far as workers use it. NVIDIA's is a library of its own, which knows the driver from
// inside; the software GPU is both.
#include "softgpu/driver/queue/activities.h"

using namespace millpond;
using softgpu::Activities;

extern "C" {

[[gnu::visibility("default")]] cupti::Result cuptiGetVersion(uint32_t* version) {
  if (!version) return cupti::kInvalidParameter;
  *version = 130000;
  return cupti::kSuccess;
}

[[gnu::visibility("default")]] cupti::Result cuptiGetTimestamp(uint64_t* timestamp) {
  if (!timestamp) return cupti::kInvalidParameter;
  *timestamp = Activities::now();
  return cupti::kSuccess;
}

[[gnu::visibility("default")]] cupti::Result cuptiActivityRegisterCallbacks(cupti::BufferRequested requested,
                                                                            cupti::BufferCompleted completed) {
  return Activities::instance().registerCallbacks(requested, completed);
}

[[gnu::visibility("default")]] cupti::Result cuptiActivityEnable(cupti::Kind kind) {
  return Activities::instance().enable(kind, true);
}

[[gnu::visibility("default")]] cupti::Result cuptiActivityDisable(cupti::Kind kind) {
  return Activities::instance().enable(kind, false);
}

[[gnu::visibility("default")]] cupti::Result cuptiActivityFlushAll(uint32_t) {
  Activities::instance().flush();
  return cupti::kSuccess;
}

[[gnu::visibility("default")]] cupti::Result cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBytes,
                                                                        uint8_t** record) {
  return Activities::nextRecord(buffer, validBytes, record);
}

[[gnu::visibility("default")]] cupti::Result cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  if (!dropped) return cupti::kInvalidParameter;
  *dropped = Activities::instance().takeDropped();
  return cupti::kSuccess;
}

[[gnu::visibility("default")]] cupti::Result cuptiSubscribe(void** subscriber, cupti::Callback callback, void* data) {
  return Activities::instance().subscribe(subscriber, callback, data);
}

[[gnu::visibility("default")]] cupti::Result cuptiUnsubscribe(void* subscriber) {
  return Activities::instance().unsubscribe(subscriber);
}

[[gnu::visibility("default")]] cupti::Result cuptiEnableCallback(uint32_t isWanted, void* subscriber, uint32_t domain,
                                                                 uint32_t call) {
  return Activities::instance().enableCallback(isWanted != 0, subscriber, domain, call);
}

}  // extern "C"
