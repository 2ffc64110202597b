// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/model/grid_workspaces.h"

#include <cstring>

namespace millpond::softgpu {
namespace {

/// CUDA's cooperative groups expect a size and a barrier, of 4 bytes each.
constexpr uint64_t kWorkspaceBytes = 64;

}  // namespace

uint64_t GridWorkspaces::take(const std::function<uint64_t(uint64_t bytes)>& allocate) {
  uint64_t address = 0;
  {
    std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      address = spare_.back();
      spare_.pop_back();
    }
  }
  if (address == 0) address = allocate(kWorkspaceBytes);
  if (address != 0) std::memset(reinterpret_cast<void*>(address), 0, kWorkspaceBytes);
  return address;
}

void GridWorkspaces::giveBack(uint64_t address) {
  std::lock_guard lock(mutex_);
  spare_.push_back(address);
}

void GridWorkspaces::forget() {
  std::lock_guard lock(mutex_);
  spare_.clear();
}

}  // namespace millpond::softgpu
