// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/array_tiles.h"

#include <algorithm>

#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kArray = 5, kOther = 6;
using Memories = std::vector<uint64_t>;

ArrayTiles::Part box(unsigned x, unsigned width, unsigned level = 0, unsigned layer = 0) {
  CUarrayMapInfo entry{};
  entry.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  entry.subresource.sparseLevel = {level, layer, x, 0, 0, width, 64, 1};
  return ArrayTiles::partOf(entry);
}
ArrayTiles::Part tail(uint64_t offset, uint64_t size) {
  CUarrayMapInfo entry{};
  entry.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  entry.subresource.miptail = {0, offset, size};
  return ArrayTiles::partOf(entry);
}
Memories removed(ArrayTiles& tiles, const ArrayTiles::Part& part) {
  Memories out;
  tiles.remove(kArray, part, out);
  std::ranges::sort(out);
  return out;
}

TEST("what is unmapped whole is let go of, in its level, layer and array") {
  ArrayTiles tiles;
  tiles.add(kArray, box(0, 64), 1, nullptr);
  tiles.add(kArray, box(64, 64), 2, nullptr);
  tiles.add(kArray, box(0, 64, 1), 3, nullptr);
  tiles.add(kArray, box(0, 64, 0, 1), 4, nullptr);
  tiles.add(kOther, box(0, 64), 5, nullptr);
  CHECK(removed(tiles, box(0, 32)).empty());
  CHECK(removed(tiles, box(0, 96)) == Memories{1});
  CHECK(removed(tiles, box(0, 128)) == Memories{2});
  Memories rest;
  tiles.drop(kArray, rest);
  std::ranges::sort(rest);
  CHECK(rest == (Memories{3, 4}));
  tiles.drop(kArray, rest);
  CHECK_EQ(rest.size(), 2u);
}

TEST("what is mapped where something was takes its place, but what may have failed does not") {
  ArrayTiles tiles;
  Memories replaced;
  tiles.add(kArray, box(0, 64), 1, &replaced);
  CHECK(replaced.empty());
  tiles.add(kArray, box(0, 64), 2, &replaced);
  CHECK(replaced == Memories{1});
  tiles.add(kArray, box(0, 64), 3, nullptr);
  CHECK(removed(tiles, box(0, 64)) == (Memories{2, 3}));
}

TEST("a tail is no level, and its end may be any number") {
  ArrayTiles tiles;
  tiles.add(kArray, tail(0, 4096), 1, nullptr);
  CHECK(removed(tiles, box(0, 1 << 20)).empty());
  CHECK(removed(tiles, tail(4096, UINT64_MAX)).empty());
  CHECK(removed(tiles, tail(0, UINT64_MAX)) == Memories{1});
}

TEST("an array has so many parts and no more") {
  ArrayTiles tiles;
  CHECK(tiles.hasRoom(kArray, ArrayTiles::kMostParts));
  CHECK(!tiles.hasRoom(kArray, ArrayTiles::kMostParts + 1));
  tiles.add(kArray, box(0, 64), 1, nullptr);
  CHECK(!tiles.hasRoom(kArray, ArrayTiles::kMostParts));
  CHECK(tiles.hasRoom(kOther, ArrayTiles::kMostParts));
}

}  // namespace
}  // namespace millpond::worker
