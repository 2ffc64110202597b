// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/array_tiles.h"

#include <utility>

namespace millpond::worker {

bool ArrayTiles::Part::contains(const Part& other) const {
  if (isTail != other.isTail || level != other.level || layer != other.layer) return false;
  for (size_t d = 0; d < from.size(); ++d)
    if (other.from[d] < from[d] || other.to[d] > to[d]) return false;
  return true;
}

ArrayTiles::Part ArrayTiles::partOf(const CUarrayMapInfo& entry) {
  Part part;
  if (entry.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    const auto& tail = entry.subresource.miptail;
    part.isTail = true;
    part.layer = tail.layer;
    part.from[0] = tail.offset;
    // The driver accepts no sum that overflows.
    part.to[0] = tail.offset > UINT64_MAX - tail.size ? UINT64_MAX : tail.offset + tail.size;
    return part;
  }
  const auto& box = entry.subresource.sparseLevel;
  part.level = box.level;
  part.layer = box.layer;
  part.from = {box.offsetX, box.offsetY, box.offsetZ};
  part.to = {uint64_t{box.offsetX} + box.extentWidth, uint64_t{box.offsetY} + box.extentHeight,
             uint64_t{box.offsetZ} + box.extentDepth};
  return part;
}

bool ArrayTiles::hasRoom(uint64_t array, size_t more) const {
  const auto found = tiles_.find(array);
  const size_t parts = found == tiles_.end() ? 0 : found->second.size();
  return parts <= kMostParts && more <= kMostParts - parts;
}

void ArrayTiles::add(uint64_t array, const Part& part, uint64_t memory, std::vector<uint64_t>* replaced) {
  if (replaced) remove(array, part, *replaced);
  tiles_[array].push_back({part, memory});
}

void ArrayTiles::remove(uint64_t array, const Part& part, std::vector<uint64_t>& memories) {
  const auto found = tiles_.find(array);
  if (found == tiles_.end()) return;
  std::erase_if(found->second, [&](const Tile& tile) {
    if (!part.contains(tile.part)) return false;
    memories.push_back(tile.memory);
    return true;
  });
  if (found->second.empty()) tiles_.erase(found);
}

void ArrayTiles::drop(uint64_t array, std::vector<uint64_t>& memories) {
  const auto found = tiles_.find(array);
  if (found == tiles_.end()) return;
  for (const Tile& tile : found->second) memories.push_back(tile.memory);
  tiles_.erase(found);
}

}  // namespace millpond::worker
