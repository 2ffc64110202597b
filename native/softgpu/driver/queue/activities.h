// SPDX-License-Identifier: Apache-2.0
// What kernels, copies and fills of this process took, in the records of CUPTI's Activity API. Nothing is noted, nor does it
// cost more than a look at a flag, before a kind is enabled.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "cuda/cupti.h"

namespace millpond::softgpu {

/// The place to which a piece of work belongs.
struct WorkPlace {
  uint32_t device = 0;
  uint32_t context = 0;
  uint32_t stream = 0;
};

class Activities {
 public:
  /// One for the process, never destroyed.
  static Activities& instance();

  bool isOn() const { return isOn_.load(std::memory_order_acquire); }
  bool notes(cupti::Kind kind) const { return isOn() && (kinds_.load(std::memory_order_relaxed) & bit(kind)) != 0; }
  /// A wrapper of `body` that records its activity for `place`, with its own number.
  std::function<void()> placed(WorkPlace place, std::function<void()> body);

  struct Shape {
    std::array<uint32_t, 3> grid, block;
    uint32_t registers = 0;
    uint32_t staticSharedBytes = 0, dynamicSharedBytes = 0;
  };
  static uint64_t now();
  /// Called by the thread that has just done the work, from `start` to now.
  void kernel(uint64_t start, const std::string& name, const Shape& shape);
  void copy(uint64_t start, cupti::CopyKind kind, cupti::MemoryKind from, cupti::MemoryKind to, uint64_t bytes);
  void fill(uint64_t start, uint32_t value, uint64_t bytes);

  // The functions of CUPTI

  cupti::Result registerCallbacks(cupti::BufferRequested requested, cupti::BufferCompleted completed);
  cupti::Result enable(cupti::Kind kind, bool isWanted);
  void flush();
  static cupti::Result nextRecord(const uint8_t* buffer, size_t validBytes, uint8_t** record);
  cupti::Result subscribe(void** subscriber, cupti::Callback callback, void* data);
  cupti::Result unsubscribe(const void* subscriber);
  /// The switch of cuLaunchKernel turns on callbacks for all work; those of other calls do nothing.
  cupti::Result enableCallback(bool isWanted, const void* subscriber, uint32_t domain, uint32_t call);
  size_t takeDropped() { return dropped_.exchange(0); }

 private:
  static constexpr uint32_t bit(cupti::Kind kind) { return uint32_t{1} << static_cast<uint32_t>(kind); }
  static size_t bytesOf(cupti::Kind kind);
  template <typename R>
  void append(R record);
  void complete();

  std::atomic<bool> isOn_{false};
  std::atomic<uint32_t> kinds_{0};
  std::atomic<uint32_t> lastNumber_{0};
  std::mutex mutex_;
  cupti::BufferRequested requested_ = nullptr;
  cupti::BufferCompleted completed_ = nullptr;
  uint8_t* buffer_ = nullptr;
  size_t bytes_ = 0, used_ = 0;
  std::atomic<size_t> dropped_{0};  ///< requested while a buffer is being returned, with the mutex held
  std::set<std::string> names_;     ///< records point to them
  std::atomic<cupti::Callback> callback_{nullptr};
  void* callbackData_ = nullptr;
  std::atomic<bool> calls_{false};
};

}  // namespace millpond::softgpu
