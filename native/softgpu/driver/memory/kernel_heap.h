// SPDX-License-Identifier: Apache-2.0
// The memory of malloc() and free() in kernels: one piece of device memory per context, parcelled out.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

/// Allocates from the memory from `base` to `base + bytes`, which belongs to another object. That memory stays mapped
/// until the context ends, even when freed, as a real card's heap does. The metadata is outside of it, where kernels
/// cannot corrupt it.
class KernelHeap final : public ptx::DeviceHeap {
 public:
  /// `base` is a multiple of 16. A heap of 0 bytes has nothing left.
  KernelHeap(uint64_t base, uint64_t bytes);

  uint64_t allocate(uint64_t bytes) override;
  bool release(uint64_t address) override;

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;            // address to length; no two of them are adjacent
  std::unordered_map<uint64_t, uint64_t> used_;  // address to length
};

}  // namespace millpond::softgpu
