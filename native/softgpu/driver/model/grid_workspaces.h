// SPDX-License-Identifier: Apache-2.0
// Where the blocks of cooperative grids meet: words of device memory, one piece for each grid under way.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace millpond::softgpu {

class Context;

/// Pieces of a context's memory, which go with it. Used again and again: a context has as many as it ever had cooperative
/// grids at the same time.
class GridWorkspaces {
 public:
  /// An exclusively owned piece, filled with zeros; 0 when the device is out of memory.
  uint64_t take(Context& context);
  void giveBack(uint64_t address);
  /// To be called when the context has ended.
  void forget();

 private:
  std::mutex mutex_;
  std::vector<uint64_t> spare_;
};

}  // namespace millpond::softgpu
