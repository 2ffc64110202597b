// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/queue/activities.h"

#include <cstring>
#include <ctime>
#include <utility>

namespace millpond::softgpu {
namespace {

struct CurrentWork {
  WorkPlace place;
  uint32_t number = 0;
};
thread_local CurrentWork currentWork;

/// cuLaunchKernel. This driver does not report to its callbacks which call it was.
constexpr uint32_t kAnyCall = 307;

int32_t whole(uint32_t value) { return static_cast<int32_t>(value); }

}  // namespace

Activities& Activities::instance() {
  static auto& one = *new Activities();
  return one;
}

uint64_t Activities::now() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

std::function<void()> Activities::placed(WorkPlace place, std::function<void()> body) {
  const uint32_t number = lastNumber_.fetch_add(1) + 1;
  if (calls_.load(std::memory_order_acquire)) {
    cupti::CallbackData told{};
    told.correlation = number;
    callback_.load(std::memory_order_acquire)(callbackData_, cupti::kDriverCalls, kAnyCall, &told);
  }
  return [work = CurrentWork{place, number}, body = std::move(body)] {
    // A body may run within another one's thread, which waits for it.
    const CurrentWork before = std::exchange(currentWork, work);
    body();
    currentWork = before;
  };
}

size_t Activities::bytesOf(cupti::Kind kind) {
  switch (kind) {
    case cupti::Kind::kConcurrentKernel: return sizeof(cupti::KernelRecord);
    case cupti::Kind::kCopy: return sizeof(cupti::CopyRecord);
    case cupti::Kind::kPeerCopy: return sizeof(cupti::PeerCopyRecord);
    case cupti::Kind::kFill: return sizeof(cupti::FillRecord);
  }
  return 0;
}

// With the mutex held.
void Activities::complete() {
  if (!buffer_) return;
  completed_(nullptr, 0, std::exchange(buffer_, nullptr), bytes_, used_);
  bytes_ = used_ = 0;
}

// With the mutex held.
template <typename R>
void Activities::append(R record) {
  static_assert(sizeof(R) % 8 == 0);
  record.device = currentWork.place.device;
  record.context = currentWork.place.context;
  record.stream = currentWork.place.stream;
  record.correlation = currentWork.number;
  if (buffer_ && bytes_ - used_ < sizeof record) complete();
  if (!buffer_) {
    size_t most = 0;
    requested_(&buffer_, &bytes_, &most);
    used_ = 0;
    if (!buffer_ || bytes_ < sizeof record) {
      ++dropped_;
      return;
    }
  }
  std::memcpy(buffer_ + used_, &record, sizeof record);
  used_ += sizeof record;
}

void Activities::kernel(uint64_t start, const std::string& name, const Shape& shape) {
  const uint64_t end = now();
  const std::lock_guard lock(mutex_);
  cupti::KernelRecord record{};
  record.kind = cupti::Kind::kConcurrentKernel;
  record.registersPerThread = static_cast<uint16_t>(shape.registers);
  record.start = start;
  record.end = end;
  for (size_t i = 0; i < 3; ++i) {
    record.grid[i] = whole(shape.grid[i]);
    record.block[i] = whole(shape.block[i]);
  }
  record.staticSharedBytes = whole(shape.staticSharedBytes);
  record.dynamicSharedBytes = whole(shape.dynamicSharedBytes);
  record.name = names_.insert(name).first->c_str();
  append(record);
}

void Activities::copy(uint64_t start, cupti::CopyKind kind, cupti::MemoryKind from, cupti::MemoryKind to,
                      uint64_t bytes) {
  const uint64_t end = now();
  const std::lock_guard lock(mutex_);
  cupti::CopyRecord record{};
  record.kind = cupti::Kind::kCopy;
  record.copy = kind;
  record.from = from;
  record.to = to;
  record.bytes = bytes;
  record.start = start;
  record.end = end;
  append(record);
}

void Activities::fill(uint64_t start, uint32_t value, uint64_t bytes) {
  const uint64_t end = now();
  const std::lock_guard lock(mutex_);
  cupti::FillRecord record{};
  record.kind = cupti::Kind::kFill;
  record.value = value;
  record.bytes = bytes;
  record.start = start;
  record.end = end;
  append(record);
}

cupti::Result Activities::registerCallbacks(cupti::BufferRequested requested, cupti::BufferCompleted completed) {
  if (!requested || !completed) return cupti::kInvalidParameter;
  const std::lock_guard lock(mutex_);
  if (buffer_) complete();
  requested_ = requested;
  completed_ = completed;
  return cupti::kSuccess;
}

cupti::Result Activities::enable(cupti::Kind kind, bool isWanted) {
  if (bytesOf(kind) == 0) return cupti::kInvalidKind;
  const std::lock_guard lock(mutex_);
  if (!requested_) return cupti::kInvalidOperation;
  if (isWanted)
    kinds_.fetch_or(bit(kind));
  else
    kinds_.fetch_and(~bit(kind));
  isOn_.store(kinds_.load() != 0, std::memory_order_release);
  return cupti::kSuccess;
}

cupti::Result Activities::subscribe(void** subscriber, cupti::Callback callback, void* data) {
  if (!subscriber || !callback) return cupti::kInvalidParameter;
  const std::lock_guard lock(mutex_);
  if (callback_.load()) return cupti::kMaxLimitReached;
  callbackData_ = data;
  callback_.store(callback, std::memory_order_release);
  *subscriber = this;
  return cupti::kSuccess;
}

cupti::Result Activities::unsubscribe(const void* subscriber) {
  if (subscriber != this) return cupti::kInvalidParameter;
  // A call may be about to use the function, which therefore stays.
  calls_.store(false);
  return cupti::kSuccess;
}

cupti::Result Activities::enableCallback(bool isWanted, const void* subscriber, uint32_t domain, uint32_t call) {
  if (subscriber != this || domain != cupti::kDriverCalls) return cupti::kInvalidParameter;
  if (call == kAnyCall) calls_.store(isWanted, std::memory_order_release);
  return cupti::kSuccess;
}

void Activities::flush() {
  const std::lock_guard lock(mutex_);
  complete();
}

cupti::Result Activities::nextRecord(const uint8_t* buffer, size_t validBytes, uint8_t** record) {
  if (!buffer || !record) return cupti::kInvalidParameter;
  size_t at = 0;
  if (*record) {
    cupti::Kind kind{};
    std::memcpy(&kind, *record, sizeof kind);
    at = static_cast<size_t>(*record - buffer) + bytesOf(kind);
  }
  if (at >= validBytes) return cupti::kMaxLimitReached;
  *record = const_cast<uint8_t*>(buffer) + at;
  return cupti::kSuccess;
}

}  // namespace millpond::softgpu
