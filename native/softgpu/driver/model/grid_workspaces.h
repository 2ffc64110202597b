// SPDX-License-Identifier: Apache-2.0
// Where the blocks of cooperative grids meet: words of device memory, one piece for each grid under way.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace millpond::softgpu {

/// Pieces of a context's memory, which end with it. They are reused: a context has as many as it ever had concurrent
/// cooperative grids.
class GridWorkspaces {
 public:
  /// An exclusively owned piece, filled with zeros, and allocated by `allocate` if none is spare; 0 if the device is
  /// out of memory.
  uint64_t take(const std::function<uint64_t(uint64_t bytes)>& allocate);
  void giveBack(uint64_t address);
  /// To be called when the context has ended.
  void forget();

 private:
  std::mutex mutex_;
  std::vector<uint64_t> spare_;
};

}  // namespace millpond::softgpu
