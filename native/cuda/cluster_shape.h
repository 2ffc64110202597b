// SPDX-License-Identifier: Apache-2.0
// Blocks that are launched together and share their memory.
#pragma once

#include <cstdint>

namespace millpond {

struct ClusterShape {
  /// Clusters of up to this many blocks are possible on every device that has clusters.
  static constexpr uint64_t kPortableBlocks = 8;

  unsigned x = 0, y = 0, z = 0;

  bool isAny() const { return (x | y | z) != 0; }
  /// Whether the driver certainly accepts a grid of that size in such clusters. Only the driver can decide about other
  /// shapes.
  bool certainlyFits(unsigned gridX, unsigned gridY, unsigned gridZ) const {
    return x != 0 && y != 0 && z != 0 && gridX % x == 0 && gridY % y == 0 && gridZ % z == 0 && x <= kPortableBlocks &&
           y <= kPortableBlocks && z <= kPortableBlocks && uint64_t{x} * y * z <= kPortableBlocks;
  }
};

}  // namespace millpond
