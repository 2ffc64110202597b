// SPDX-License-Identifier: Apache-2.0
// What the driver takes of a device for a context, beside what is allocated in it (MILLPOND_SOFTGPU_OVERHEAD).
#pragma once

#include <cstdint>
#include <mutex>

#include "softgpu/driver/model/device.h"

namespace millpond::softgpu {

class ContextMemory {
 public:
  explicit ContextMemory(Device& device) : device_(device) {}
  ~ContextMemory() { release(); }
  ContextMemory(const ContextMemory&) = delete;
  ContextMemory& operator=(const ContextMemory&) = delete;

  /// Each is allocated once, and kept until the context ends. False if the device has no memory left.
  bool takeContext() { return take(context_, device_.overhead().context); }
  bool takePrints() { return take(prints_, device_.overhead().prints); }
  bool takeAllocates() { return take(allocates_, device_.overhead().allocates); }
  /// Returns all of it.
  void release() {
    const std::lock_guard lock(mutex_);
    const uint64_t bytes = context_ + prints_ + allocates_;
    context_ = prints_ = allocates_ = 0;
    if (bytes != 0) device_.release(bytes);
  }

 private:
  bool take(uint64_t& taken, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (taken != 0 || bytes == 0) return true;
    if (!device_.charge(bytes)) return false;
    taken = bytes;
    return true;
  }

  Device& device_;
  std::mutex mutex_;
  uint64_t context_ = 0;
  uint64_t prints_ = 0;
  uint64_t allocates_ = 0;
};

}  // namespace millpond::softgpu
