// SPDX-License-Identifier: Apache-2.0
// Which memory is mapped to which parts of sparse arrays. Memory counts for as long as a part of an array may have it.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::worker {

class ArrayTiles {
 public:
  /// The number of parts of an array that are tracked; more mappings are refused.
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

  /// Whether an array may have that many parts more.
  bool hasRoom(uint64_t array, size_t more) const;
  /// Notes what is mapped. `replaced` gets the memories of parts that lie in it, which it takes the place of; null: they stay.
  void add(uint64_t array, const Part& part, uint64_t memory, std::vector<uint64_t>* replaced);
  /// Frees the parts that lie in it; a part that lies in it only partly stays until its array ends.
  void remove(uint64_t array, const Part& part, std::vector<uint64_t>& memories);
  /// The array is gone.
  void drop(uint64_t array, std::vector<uint64_t>& memories);

 private:
  struct Tile {
    Part part;
    uint64_t memory;
  };
  std::unordered_map<uint64_t, std::vector<Tile>> tiles_;  // by array
};

}  // namespace millpond::worker
