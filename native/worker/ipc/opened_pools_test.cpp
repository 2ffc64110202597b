// SPDX-License-Identifier: Apache-2.0
#include "worker/ipc/opened_pools.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kRunBytes = 1 << 21;

TEST("a pool is what its source says until it is destroyed, and its number is free when nothing of it is left") {
  OpenedPools pools;
  CHECK(pools.add(5, {"w-a", 7}, 1));
  CHECK(!pools.add(5, {"w-b", 8}, 0));
  CHECK(pools.find(5)->source == (OpenedPools::Source{"w-a", 7}));
  CHECK_EQ(pools.find(5)->device, 1u);
  CHECK(!pools.find(6));
  CHECK_EQ(pools.numberOf({"w-a", 7}).value(), 5u);
  CHECK(!pools.numberOf({"w-b", 7}));
  pools.map(5, 1, 0x1000);
  pools.open(0x1000, 0x1200);
  CHECK(pools.destroy(5));
  CHECK(!pools.destroy(5));
  CHECK(!pools.find(5));
  CHECK(!pools.numberOf({"w-a", 7}));
  CHECK(!pools.mapped(5, 1));
  CHECK(!pools.add(5, {"w-a", 7}, 1));
  CHECK(pools.isOpen(0x1200));
  CHECK_EQ(pools.close(0x1200).value(), 0x1000u);
  CHECK(pools.leave(0x1000));
  CHECK(pools.add(5, {"w-a", 7}, 1));
}

TEST("a run is mapped for as long as something uses it, however opening, freeing and ending are mixed") {
  constexpr uint64_t kRuns = 3;
  constexpr uint64_t kPlaces = 4;
  const auto startOf = [](uint64_t run) { return (run + 1) * kRunBytes; };
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::minstd_rand random(seed + 1);
    OpenedPools pools;
    CHECK(pools.add(1, {"w-a", 1}, 0));
    std::set<uint64_t> open;       // addresses
    std::vector<uint64_t> ending;  // starts
    std::array<uint64_t, kRuns> uses{};
    for (int step = 0; step < 500; ++step) {
      const uint64_t run = random() % kRuns;
      const uint64_t address = startOf(run) + random() % kPlaces * 512;
      if (random() % 2) {
        CHECK_EQ(pools.mapped(1, run).has_value(), uses[run] > 0);
        if (!uses[run]) pools.map(1, run, startOf(run));
        pools.open(startOf(run), address);
        uses[run] += open.insert(address).second;
      } else if (random() % 2) {
        const auto closed = pools.close(address);
        const auto known = open.find(address);
        CHECK_EQ(closed.has_value(), known != open.end());
        if (!closed) continue;
        CHECK_EQ(*closed, startOf(run));
        open.erase(known);
        ending.push_back(*closed);
      } else if (!ending.empty()) {
        const uint64_t start = ending[random() % ending.size()];
        ending.erase(std::find(ending.begin(), ending.end(), start));
        const uint64_t of = start / kRunBytes - 1;
        CHECK_EQ(pools.leave(start), --uses[of] == 0);
      }
      for (uint64_t each = 0; each < kRuns; ++each) CHECK_EQ(pools.isMapped(startOf(each)), uses[each] > 0);
    }
  }
}

}  // namespace
}  // namespace millpond::worker
