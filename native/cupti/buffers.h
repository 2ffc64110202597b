// SPDX-License-Identifier: Apache-2.0
// The program's buffers, which it gives and gets back with records.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "cupti/types.h"

namespace millpond::profiler {

class Buffers {
 public:
  using Requested = void (*)(uint8_t** buffer, size_t* bytes, size_t* mostRecords);
  using Completed = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t validBytes);

  Result use(Requested requested, Completed completed);

  // Called by one thread at a time

  /// A record for which the program has no buffer is dropped.
  template <typename R>
  void append(const R& record) {
    static_assert(sizeof record % 8 == 0);
    if (uint8_t* place = take(sizeof record)) std::memcpy(place, &record, sizeof record);
  }
  /// Delivers the records.
  void complete();
  /// Requests a buffer now: Kineto does not flush until it has provided one.
  void prepare();

  /// Number of records dropped since the last call.
  size_t takeDropped() { return dropped_.exchange(0); }
  void drop(size_t records) { dropped_.fetch_add(records); }

  /// The record after `record` in a buffer; for null the first one.
  static Result next(const uint8_t* buffer, size_t validBytes, uint8_t** record);

 private:
  uint8_t* take(size_t bytes);

  std::mutex mutex_;
  Requested requested_ = nullptr;
  Completed completed_ = nullptr;
  uint8_t* buffer_ = nullptr;
  size_t bytes_ = 0, used_ = 0;
  size_t records_ = 0, mostRecords_ = 0;
  std::atomic<size_t> dropped_{0};
};

}  // namespace millpond::profiler
