// SPDX-License-Identifier: Apache-2.0
#include "cupti/buffers.h"

#include <utility>

namespace millpond::profiler {
namespace {

size_t bytesOf(uint32_t kind) {
  switch (kind) {
    case kCopy: return sizeof(CopyRecord);
    case kFill: return sizeof(FillRecord);
    case kDriver:
    case kRuntime: return sizeof(CallRecord);
    case kConcurrentKernel: return sizeof(KernelRecord);
    case kSynchronization: return sizeof(SyncRecord);
    case kExternalCorrelation: return sizeof(ExternalCorrelationRecord);
    default: return 0;
  }
}

}  // namespace

Result Buffers::use(Requested requested, Completed completed) {
  if (!requested || !completed) return kInvalidParameter;
  const std::lock_guard lock(mutex_);
  requested_ = requested;
  completed_ = completed;
  return kSuccess;
}

uint8_t* Buffers::take(size_t bytes) {
  if (buffer_ && (bytes_ - used_ < bytes || (mostRecords_ != 0 && records_ >= mostRecords_))) complete();
  prepare();
  if (!buffer_ || bytes_ < bytes) {
    drop(1);
    return nullptr;
  }
  uint8_t* const place = buffer_ + used_;
  used_ += bytes;
  ++records_;
  return place;
}

void Buffers::prepare() {
  if (buffer_) return;
  Requested requested = nullptr;
  {
    const std::lock_guard lock(mutex_);
    requested = requested_;
  }
  bytes_ = used_ = records_ = mostRecords_ = 0;
  // It may call this library.
  if (requested) requested(&buffer_, &bytes_, &mostRecords_);
}

void Buffers::complete() {
  if (!buffer_) return;
  Completed completed = nullptr;
  {
    const std::lock_guard lock(mutex_);
    completed = completed_;
  }
  if (completed) completed(nullptr, 0, std::exchange(buffer_, nullptr), bytes_, used_);
}

Result Buffers::next(const uint8_t* buffer, size_t validBytes, uint8_t** record) {
  if (!buffer || !record) return kInvalidParameter;
  size_t at = 0;
  if (*record) {
    uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof kind);
    const size_t bytes = bytesOf(kind);
    if (bytes == 0) return kInvalidKind;
    at = static_cast<size_t>(*record - buffer) + bytes;
  }
  if (at >= validBytes) return kMaxLimitReached;
  *record = const_cast<uint8_t*>(buffer) + at;
  return kSuccess;
}

}  // namespace millpond::profiler
