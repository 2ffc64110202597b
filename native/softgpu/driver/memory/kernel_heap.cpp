// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/kernel_heap.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "softgpu/driver/host/pages.h"

namespace millpond::softgpu {
namespace {

// The alignment that malloc() in a kernel guarantees. In bytes.
constexpr uint64_t kParcelAlignment = 16;

}  // namespace

KernelHeap::KernelHeap(uint64_t base, uint64_t bytes) {
  bytes -= bytes % kParcelAlignment;
  if (bytes > 0) free_.emplace(base, bytes);
}

uint64_t KernelHeap::allocate(uint64_t bytes) {
  const uint64_t needed = roundUp(bytes, kParcelAlignment);
  if (needed == 0) return 0;
  std::lock_guard lock(mutex_);
  const auto fit = std::find_if(free_.begin(), free_.end(), [&](const auto& piece) { return piece.second >= needed; });
  if (fit == free_.end()) return 0;
  const uint64_t address = fit->first;
  try {
    used_.emplace(address, needed);
  } catch (const std::bad_alloc&) {
    return 0;  // without a record of it, it could never be freed
  }
  // The node is reused for the remainder, so that nothing here can fail.
  auto node = free_.extract(fit);
  if (node.mapped() == needed) return address;
  node.key() += needed;
  node.mapped() -= needed;
  free_.insert(std::move(node));
  return address;
}

bool KernelHeap::release(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto position = used_.find(address);
  if (position == used_.end()) return false;
  const uint64_t bytes = position->second;
  const auto next = free_.upper_bound(address);
  const bool touchesNext = next != free_.end() && address + bytes == next->first;
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      if (touchesNext) {
        before->second += next->second;
        free_.erase(next);
      }
      used_.erase(position);
      return true;
    }
  }
  if (touchesNext) {
    auto node = free_.extract(next);
    node.key() = address;
    node.mapped() += bytes;
    free_.insert(std::move(node));
  } else {
    try {
      free_.emplace(address, bytes);
    } catch (const std::bad_alloc&) {
      return true;  // it stays allocated: this process has no memory left to record that it is free
    }
  }
  used_.erase(position);
  return true;
}

}  // namespace millpond::softgpu
