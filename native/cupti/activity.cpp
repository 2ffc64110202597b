// SPDX-License-Identifier: Apache-2.0
// Entry points: CUPTI's Activity API. The functions that are not supported are in refused.cpp.
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "cupti/collector.h"
#include "cupti/refusal.h"

#define EXPORT [[gnu::visibility("default")]] Result

using namespace millpond::profiler;

namespace {

/// Attributes are stored and returned: sizes of buffers on the device, of which there are none here.
constexpr uint32_t kMostAttributes = 32;
constexpr size_t kMostAttributeBytes = 8;

struct Attribute {
  size_t bytes = 0;
  std::array<std::byte, kMostAttributeBytes> value{};
};

struct Attributes {
  std::mutex mutex;
  std::array<Attribute, kMostAttributes> all;
};

Attributes& attributes() {
  static Attributes& known = *std::make_unique<Attributes>().release();
  return known;
}

Collector& collector() { return Collector::instance(); }

}  // namespace

extern "C" {

EXPORT cuptiGetVersion(uint32_t* version) {
  if (!version) return kInvalidParameter;
  *version = kVersion;
  return kSuccess;
}

EXPORT cuptiGetTimestamp(uint64_t* timestamp) {
  if (!timestamp) return kInvalidParameter;
  *timestamp = collector().clock().now();
  return kSuccess;
}

EXPORT cuptiActivityRegisterTimestampCallback(Clock::Callback callback) {
  collector().clock().use(callback);
  return kSuccess;
}

EXPORT cuptiActivityRegisterCallbacks(Buffers::Requested requested, Buffers::Completed completed) {
  return collector().buffers().use(requested, completed);
}

EXPORT cuptiActivityEnable(uint32_t kind) { return collector().enable(kind); }
EXPORT cuptiActivityDisable(uint32_t kind) { return collector().disable(kind); }

EXPORT cuptiActivityEnableDriverApi(uint32_t call, uint8_t isWanted) {
  return collector().enableDriverCall(call, isWanted != 0);
}

EXPORT cuptiActivityEnableRuntimeApi(uint32_t call, uint8_t isWanted) {
  return collector().enableRuntimeCall(call, isWanted != 0);
}

EXPORT cuptiActivityFlushAll(uint32_t) { return collector().flush(); }

EXPORT cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBytes, uint8_t** record) {
  return Buffers::next(buffer, validBytes, record);
}

EXPORT cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  if (!dropped) return kInvalidParameter;
  *dropped = collector().buffers().takeDropped();
  return kSuccess;
}

EXPORT cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
  return ThreadNotes::own().externalIds.push(kind, id);
}

EXPORT cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t* lastId) {
  return ThreadNotes::own().externalIds.pop(kind, lastId);
}

EXPORT cuptiActivitySetAttribute(uint32_t attribute, size_t* bytes, const void* value) {
  if (!bytes || !value || attribute >= kMostAttributes || *bytes > kMostAttributeBytes) return kInvalidParameter;
  const std::lock_guard lock(attributes().mutex);
  Attribute& kept = attributes().all[attribute];
  kept.bytes = *bytes;
  std::memcpy(kept.value.data(), value, *bytes);
  return kSuccess;
}

EXPORT cuptiActivityGetAttribute(uint32_t attribute, size_t* bytes, void* value) {
  if (!bytes || !value || attribute >= kMostAttributes) return kInvalidParameter;
  const std::lock_guard lock(attributes().mutex);
  const Attribute& kept = attributes().all[attribute];
  if (kept.bytes == 0) return kNotSupported;
  if (*bytes < kept.bytes) return kParameterSizeNotSufficient;
  std::memcpy(value, kept.value.data(), kept.bytes);
  *bytes = kept.bytes;
  return kSuccess;
}

/// Records are complete at a flush; nothing is delivered in between.
EXPORT cuptiActivityFlushPeriod(uint32_t) { return kSuccess; }

/// The times at which work was queued and submitted are 0 in all records, which means unknown.
EXPORT cuptiActivityEnableLatencyTimestamps(uint8_t) { return kSuccess; }

/// There are no records of events.
EXPORT cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) { return kSuccess; }

EXPORT cuptiSetThreadIdType(uint32_t type) {
  if (type > 1) return kInvalidParameter;
  collector().useSystemThreads(type == 1);
  return kSuccess;
}

EXPORT cuptiGetThreadIdType(uint32_t* type) {
  if (!type) return kInvalidParameter;
  *type = collector().usesSystemThreads() ? 1 : 0;
  return kSuccess;
}

}  // extern "C"
