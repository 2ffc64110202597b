// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/memory_arena.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/address_places.h"
#include "testing/check.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {
namespace {

struct ArenaFixture {
  FakeDriver fake;
  Driver driver = fake.table();
  ClaimBudget budget;
  MemoryArena arena;
  explicit ArenaFixture(uint64_t limit, uint64_t physical = 256 * kMi)
      : fake(1, physical), budget(limit), arena(driver, 0, budget) {}
  CUdeviceptr take(uint64_t bytes) {
    CUdeviceptr address = 0;
    CHECK_EQ(arena.allocate(bytes, address), CUDA_SUCCESS);
    return address;
  }
  CUresult attempt(uint64_t bytes) {
    CUdeviceptr address = 0;
    return arena.allocate(bytes, address);
  }
};

TEST("every allocation is aligned to 512 bytes and usable to its last byte") {
  ArenaFixture f(64 * kMi);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{511}, uint64_t{512}, uint64_t{513}, uint64_t{4097}, kMi - 1, kMi,
                               kMi + 1, kGranule - 1, kGranule, kGranule + 1, 7 * kMi + 3}) {
    const CUdeviceptr address = f.take(bytes);
    CHECK_EQ(address % 512, 0u);
    CHECK(f.arena.owns(address));
    CHECK(!f.arena.owns(address + 512));
    auto* p = reinterpret_cast<unsigned char*>(address);
    p[0] = 1;
    p[bytes - 1] = 2;
  }
}

TEST("the limit is held to the granule and can be used up") {
  for (const uint64_t limit : {10 * kMi, 11 * kMi, 12 * kMi - 1}) {
    ArenaFixture f(limit);
    CHECK_EQ(f.attempt(limit + 1), CUDA_ERROR_OUT_OF_MEMORY);
    const CUdeviceptr whole = f.take(10 * kMi);
    CHECK_EQ(f.budget.usedBytes(), 10 * kMi);
    CHECK_EQ(f.attempt(1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(f.arena.free(whole), CUDA_SUCCESS);
    CHECK_EQ(f.budget.usedBytes(), 0u);
    // In small pieces as well as in large ones.
    std::vector<CUdeviceptr> pieces;
    CUdeviceptr address = 0;
    while (f.arena.allocate(kMi, address) == CUDA_SUCCESS) pieces.push_back(address);
    CHECK_EQ(pieces.size(), 10u);
    CHECK_EQ(f.fake.usedBytes(), 10 * kMi);
    for (const CUdeviceptr piece : pieces) CHECK_EQ(f.arena.free(piece), CUDA_SUCCESS);
    CHECK_EQ(f.fake.usedBytes(), 0u);
    CHECK_EQ(f.fake.mappedRuns(), 0u);
  }
}

TEST("memory that was made elsewhere lies among the others, counts as they do, and goes as they do") {
  ArenaFixture f(10 * kMi);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle memory = 0;
  CHECK_EQ(f.driver.cuMemCreate(&memory, 2 * kGranule, &prop, 0), CUDA_SUCCESS);
  const CUdeviceptr own = f.take(100);
  CUdeviceptr address = 0;
  CHECK_EQ(f.arena.adopt(memory, 0, 2 * kGranule, 1024, address), CUDA_SUCCESS);
  CHECK(f.arena.owns(address));
  CHECK_EQ(address % kGranule, 1024u);
  CHECK_EQ(f.arena.placeOf(address).run, address - 1024);
  CHECK_EQ(f.arena.placeOf(address).runBytes, 2 * kGranule);
  CHECK_EQ(f.arena.placeOf(own).runBytes, kGranule);
  CHECK(f.arena.placeOf(own).number != f.arena.placeOf(address).number);
  CHECK_EQ(f.budget.usedBytes(), 3 * kGranule);
  // Mapped twice, it counts twice; memory that does not fit is not mapped at all.
  CUdeviceptr again = 0;
  CHECK_EQ(f.arena.adopt(memory, 0, 2 * kGranule, 1024, again), CUDA_SUCCESS);
  CUdeviceptr none = 0;
  CHECK_EQ(f.arena.adopt(memory, 0, 2 * kGranule, 1024, none), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(f.budget.usedBytes(), 5 * kGranule);
  for (const uint64_t bytes : {uint64_t{0}, kGranule + 1, ~uint64_t{0}})
    CHECK_EQ(f.arena.adopt(memory, 0, bytes, 0, none), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(f.arena.adopt(memory, 0, 2 * kGranule, 2 * kGranule, none), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(f.driver.cuMemRelease(memory), CUDA_SUCCESS);
  for (const CUdeviceptr each : {address, again, own}) CHECK_EQ(f.arena.free(each), CUDA_SUCCESS);
  CHECK(!f.arena.owns(address));
  CHECK_EQ(f.budget.usedBytes(), 0u);
  CHECK_EQ(f.fake.usedBytes(), 0u);
  CHECK_EQ(f.fake.mappedRuns(), 0u);
}

TEST("arenas of one device lie where neither the system nor the driver puts anything, each in a place of its own") {
  FakeDriver fake(1, 256 * kMi);
  const Driver driver = fake.table();
  ClaimBudget budgets[] = {ClaimBudget(32 * kMi), ClaimBudget(32 * kMi), ClaimBudget(32 * kMi)};
  std::vector<std::unique_ptr<MemoryArena>> arenas;
  std::vector<uint64_t> places;
  for (ClaimBudget& budget : budgets) {
    arenas.push_back(std::make_unique<MemoryArena>(driver, 0, budget));
    CUdeviceptr address = 0;
    CHECK_EQ(arenas.back()->allocate(kMi, address), CUDA_SUCCESS);
    CHECK(address >= kDevicePlaces.first && address < kPinnedPlaces.first);
    const uint64_t place = (address - kDevicePlaces.first) / kDevicePlaces.step;
    CHECK(std::find(places.begin(), places.end(), place) == places.end());
    places.push_back(place);
  }
}

TEST("a limit below the granule allows nothing, and one above the device no more than it has") {
  ArenaFixture tiny(kGranule - 1);
  CHECK_EQ(tiny.attempt(1), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(tiny.attempt(0), CUDA_ERROR_INVALID_VALUE);
}

TEST("when the device has less than the limit, its out-of-memory is told and nothing is lost") {
  ArenaFixture f(100 * kMi, 20 * kMi);
  const CUdeviceptr most = f.take(16 * kMi);
  CHECK_EQ(f.attempt(6 * kMi), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(f.budget.usedBytes(), 16 * kMi);
  f.take(4 * kMi);
  CHECK_EQ(f.arena.free(most), CUDA_SUCCESS);
  f.take(16 * kMi);
}

TEST("absurd sizes are refused") {
  ArenaFixture f(100 * kMi);
  for (const uint64_t bytes :
       {101 * kMi, uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 511, ~uint64_t{0} - kGranule})
    CHECK_EQ(f.attempt(bytes), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(f.attempt(0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(f.budget.usedBytes(), 0u);
  f.take(100 * kMi);
}

TEST("what was never allocated, or is freed already, cannot be freed") {
  ArenaFixture f(100 * kMi);
  CHECK_EQ(f.arena.free(0), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr small = f.take(1000);
  const CUdeviceptr large = f.take(5 * kMi);
  for (const CUdeviceptr address : {small + 1, small + 512, large + 512, large + kGranule, large - 512})
    CHECK_EQ(f.arena.free(address), CUDA_ERROR_INVALID_VALUE);
  for (const CUdeviceptr address : {small, large}) {
    CHECK_EQ(f.arena.free(address), CUDA_SUCCESS);
    CHECK_EQ(f.arena.free(address), CUDA_ERROR_INVALID_VALUE);
  }
  CHECK_EQ(f.fake.usedBytes(), 0u);
}

TEST("a failure of the driver at any step leaves everything as it was") {
  ArenaFixture f(100 * kMi);
  // At the hinted address, and anywhere.
  f.fake.failNext("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY, 2);
  CHECK_EQ(f.attempt(1), CUDA_ERROR_OUT_OF_MEMORY);
  f.fake.failNext("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr keep = f.take(1000);
  // A large allocation, and a small one that needs a granule of its own.
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"})
    for (const uint64_t bytes : {3 * kMi, kMi}) {
      const CUdeviceptr filler = f.take(kMi);
      const uint64_t before = f.fake.usedBytes();
      f.fake.failNext(call, CUDA_ERROR_INVALID_DEVICE);
      CHECK_EQ(f.attempt(bytes), CUDA_ERROR_INVALID_DEVICE);
      CHECK_EQ(f.fake.usedBytes(), before);
      CHECK_EQ(f.budget.usedBytes(), before);
      CHECK_EQ(f.arena.free(f.take(bytes)), CUDA_SUCCESS);
      CHECK_EQ(f.arena.free(filler), CUDA_SUCCESS);
      CHECK_EQ(f.fake.usedBytes(), kGranule);
    }
  CHECK_EQ(f.arena.free(keep), CUDA_SUCCESS);
}

TEST("out of memory, then a free, then success") {
  ArenaFixture f(16 * kMi);
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 8; ++i) held.push_back(f.take(kGranule));
  CHECK_EQ(f.attempt(1), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(f.arena.free(held[3]), CUDA_SUCCESS);
  held[3] = f.take(kGranule);
  // Memory in two places is one allocation, since addresses are not scarce.
  CHECK_EQ(f.arena.free(held[1]), CUDA_SUCCESS);
  CHECK_EQ(f.arena.free(held[5]), CUDA_SUCCESS);
  const CUdeviceptr both = f.take(2 * kGranule);
  std::memset(reinterpret_cast<void*>(both), 7, 2 * kGranule);
}

TEST("allocations never overlap, never exceed the limit, and give everything back") {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const uint64_t limit = 96 * kMi;
    ArenaFixture f(limit);
    std::minstd_rand random(seed);
    struct Held {
      uint64_t bytes;
      unsigned char mark;
    };
    std::map<CUdeviceptr, Held> held;
    uint64_t refused = 0;
    const auto ends = [](CUdeviceptr address, uint64_t bytes, unsigned char mark) {
      auto* p = reinterpret_cast<unsigned char*>(address);
      for (const uint64_t at : {uint64_t{0}, bytes / 2, bytes - 1}) p[at] = mark;
    };
    for (int step = 0; step < 6000; ++step) {
      if (random() % 100 < 55) {
        const uint64_t scale = uint64_t{1} << (random() % 24);
        const uint64_t bytes = 1 + random() % scale;
        CUdeviceptr address = 0;
        const CUresult rc = f.arena.allocate(bytes, address);
        if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
          ++refused;
          continue;
        }
        CHECK_EQ(rc, CUDA_SUCCESS);
        CHECK_EQ(address % 512, 0u);
        const auto next = held.lower_bound(address);
        CHECK(next == held.end() || address + bytes <= next->first);
        CHECK(next == held.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= address);
        const auto mark = static_cast<unsigned char>(random());
        ends(address, bytes, mark);
        held[address] = {bytes, mark};
      } else if (!held.empty()) {
        auto victim = std::next(held.begin(), static_cast<ptrdiff_t>(random() % held.size()));
        const auto* p = reinterpret_cast<const unsigned char*>(victim->first);
        const auto [bytes, mark] = victim->second;
        for (const uint64_t at : {uint64_t{0}, bytes / 2, bytes - 1}) CHECK_EQ(p[at], mark);
        CHECK_EQ(f.arena.free(victim->first), CUDA_SUCCESS);
        held.erase(victim);
      }
      CHECK(f.budget.usedBytes() <= limit);
      CHECK_EQ(f.budget.usedBytes(), f.fake.usedBytes());
    }
    CHECK(refused > 0);
    for (const auto& [address, entry] : held) CHECK_EQ(f.arena.free(address), CUDA_SUCCESS);
    CHECK_EQ(f.budget.usedBytes(), 0u);
    CHECK_EQ(f.fake.mappedRuns(), 0u);
  }
}

}  // namespace
}  // namespace millpond::worker
