// SPDX-License-Identifier: Apache-2.0
// The numbers are those of an H200.
#include "softgpu/driver/graphs/graph_footprint.h"

#include "testing/check.h"

namespace millpond::softgpu::testing {
namespace {

using Place = GraphSpace::Place;
constexpr uint64_t kMiB = uint64_t{1} << 20;

/// A separate device: each test has its own.
unsigned newDevice() {
  static unsigned last = 1000;
  return ++last;
}

uint64_t usedMiB(unsigned device) { return GraphFootprint::of(device).used().now / kMiB; }
uint64_t reservedMiB(unsigned device) { return GraphFootprint::of(device).reserved().now / kMiB; }

/// The addresses of allocations of one size that exist at the same time.
std::vector<Place> sideBySide(size_t count, uint64_t bytes) {
  std::vector<Place> places;
  for (size_t i = 0; i < count; ++i) places.push_back(GraphSpace::find(bytes, places));
  return places;
}

}  // namespace

TEST("allocations of a graph lie side by side, and where freed ones lay") {
  CHECK_EQ(GraphSpace::find(4096, {}).begin, uint64_t{0});
  CHECK_EQ(GraphSpace::find(4096, {{0, 4096}, {4096, 100}}).begin, uint64_t{4608});
  CHECK_EQ(GraphSpace::find(4096, {{8192, 4096}, {0, 4096}}).begin, uint64_t{4096});
  CHECK_EQ(GraphSpace::find(4097, {{8192, 4096}, {0, 4096}}).begin, uint64_t{12288});
}

TEST("memory of graphs counts in granules, until it is free and trimmed") {
  struct Row {
    uint64_t bytes;
    uint64_t held[3];  // with three allocations; after a trim with two of them, and with one
  };
  for (const Row& row : {Row{4096, {32, 32, 32}}, Row{3 * kMiB, {32, 32, 32}}, Row{16 * kMiB, {64, 64, 32}},
                         Row{20 * kMiB, {64, 64, 32}}, Row{31 * kMiB, {96, 96, 64}}, Row{40 * kMiB, {128, 96, 64}}}) {
    const unsigned device = newDevice();
    GraphSpace space(device);
    const std::vector<Place> places = sideBySide(3, row.bytes);
    for (const Place& place : places) space.hold(place, nullptr);
    for (size_t i = 0; i < 3; ++i) {
      CHECK_EQ(usedMiB(device), row.held[i]);
      CHECK_EQ(reservedMiB(device), row.held[i]);
      space.release(places[i]);
      CHECK_EQ(usedMiB(device), row.held[i]);
      GraphFootprint::of(device).trim();
    }
    CHECK_EQ(usedMiB(device), uint64_t{0});
    CHECK_EQ(GraphFootprint::of(device).used().high, row.held[0] * kMiB);
    GraphFootprint::of(device).resetUsedMark();
    CHECK_EQ(GraphFootprint::of(device).used().high, uint64_t{0});
    CHECK_EQ(GraphFootprint::of(device).reserved().high, row.held[0] * kMiB);
  }
}

TEST("for the whole of an allocation is reserved what only a part of it needs") {
  const unsigned device = newDevice();
  GraphSpace space(device);
  for (const Place& place : sideBySide(2, 40 * kMiB)) space.hold(place, nullptr);
  CHECK_EQ(usedMiB(device), uint64_t{96});
  CHECK_EQ(reservedMiB(device), uint64_t{128});
}

TEST("what a launch freed serves the next one of its stream at once, and others when it has ended") {
  const unsigned device = newDevice();
  GraphFootprint& footprint = GraphFootprint::of(device);
  const int first = 0, second = 0;
  GraphSpace one(device), other(device), third(device);
  const Place place = GraphSpace::find(40 * kMiB, {});
  footprint.enterQueue(&first);
  one.hold(place, &first);
  one.releaseBehind(place, &first);
  other.hold(place, &first);
  CHECK_EQ(usedMiB(device), uint64_t{64});
  other.releaseBehind(place, &first);
  // It may run at the same time.
  third.hold(place, &second);
  CHECK_EQ(usedMiB(device), uint64_t{128});
  third.release(place);
  footprint.leaveQueue(&first);
  one.hold(GraphSpace::find(128 * kMiB, {}), &second);
  CHECK_EQ(usedMiB(device), uint64_t{128});
}

}  // namespace millpond::softgpu::testing
