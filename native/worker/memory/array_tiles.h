// SPDX-License-Identifier: Apache-2.0
// The mapping of memory to parts of sparse arrays. Memory counts while a part of an array may use it.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::worker {

class ArrayTiles {
 public:
  /// Maximum number of tracked parts of an array; more mappings are refused.
  static constexpr size_t kMostParts = size_t{1} << 16;

  /// A box of elements in a level and layer, or a run of bytes in the tail of a layer's levels.
  struct Part {
    bool isTail = false;
    uint32_t level = 0;
    uint32_t layer = 0;
    std::array<uint64_t, 3> from{};
    std::array<uint64_t, 3> to{};

    bool contains(const Part& other) const;
  };
  static Part partOf(const CUarrayMapInfo& entry);

  /// Whether an array may have that many more parts.
  bool hasRoom(uint64_t array, size_t more) const;
  /// Records a mapping. `replaced` receives the memories of the parts that it replaces; null: these parts stay.
  void add(uint64_t array, const Part& part, uint64_t memory, std::vector<uint64_t>* replaced);
  /// Frees the parts within it; a part that is only partly within it stays until its array ends.
  void remove(uint64_t array, const Part& part, std::vector<uint64_t>& memories);
  /// The array has ended.
  void drop(uint64_t array, std::vector<uint64_t>& memories);

 private:
  struct Tile {
    Part part;
    uint64_t memory;
  };
  std::unordered_map<uint64_t, std::vector<Tile>> tiles_;  // by array
};

}  // namespace millpond::worker
