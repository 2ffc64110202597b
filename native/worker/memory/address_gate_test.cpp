// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/address_gate.h"

#include <algorithm>
#include <array>
#include <random>

#include "testing/check.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {
namespace {

struct Fixture {
  FakeDriver fake{2, 256 * kMi};
  Driver driver = fake.table();
  std::deque<ClaimBudget> budgets;
  AddressGate::Arenas arenas;
  VirtualMemory virtualMemory{driver, budgets};
  AddressGate::GraphMemory graphMemory;
  HostRuns hostRuns;
  bool isCapturing = false;
  AddressGate gate{driver, arenas, virtualMemory, graphMemory, hostRuns, [this] { return isCapturing; }};

  Fixture() {
    for (int device = 0; device < 2; ++device)
      arenas.push_back(std::make_unique<MemoryArena>(driver, device, budgets.emplace_back(64 * kMi)));
  }
  bool reaches(uint64_t address, uint64_t bytes) {
    SessionRange out;
    return gate.reach(wire::Address(address), bytes, out) == CUDA_SUCCESS;
  }
};

TEST("the extent of a box begins at its first byte and ends behind its last, for every small one") {
  std::minstd_rand random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto small = [&](uint64_t most) { return random() % (most + 1); };
    const Box box{.address = 0,
                  .pitch = small(9),
                  .rows = small(5),
                  .x = small(4),
                  .y = small(3),
                  .z = small(3),
                  .width = small(4),
                  .height = small(3),
                  .depth = small(3)};
    const auto extent = box.extent();
    const bool isEmpty = !box.width || !box.height || !box.depth;
    const bool overlaps = (box.height * box.depth > 1 && box.pitch < box.x + box.width) ||
                          (box.depth > 1 && box.rows < box.y + box.height);
    CHECK_EQ(extent.has_value(), !isEmpty && !overlaps);
    if (!extent) continue;
    uint64_t first = UINT64_MAX, last = 0;
    const bool isOneRow = box.height == 1 && box.depth == 1 && box.y == 0 && box.z == 0;
    const uint64_t pitch = isOneRow ? box.width : box.pitch;
    for (uint64_t z = box.z; z < box.z + box.depth; ++z)
      for (uint64_t y = box.y; y < box.y + box.height; ++y)
        for (uint64_t x = box.x; x < box.x + box.width; ++x) {
          const uint64_t at = (z * box.rows + y) * pitch + x;
          first = std::min(first, at);
          last = std::max(last, at);
        }
    CHECK_EQ(extent->offset, first);
    CHECK_EQ(extent->offset + extent->bytes, last + 1);
  }
}

TEST("what a copy leaves to the driver is set to what the driver takes") {
  Box packed{.address = 0, .x = 3, .y = 2, .width = 5, .height = 4, .depth = 2};
  CHECK(packed.fill());
  CHECK(packed.pitch == 8 && packed.rows == 6 && packed.extent());
  Box row{.address = 0, .width = 5};
  CHECK(row.fill() && row.pitch == 0 && row.rows == 0);
  Box given{.address = 0, .pitch = 64, .rows = 9, .width = 5, .height = 4, .depth = 2};
  CHECK(given.fill() && given.pitch == 64 && given.rows == 9);
  Box tooWide{.address = 0, .x = UINT64_MAX, .width = 5, .height = 4};
  CHECK(!tooWide.fill() && !tooWide.extent());
  Box tooHigh{.address = 0, .pitch = 8, .y = UINT64_MAX, .width = 5, .height = 4};
  CHECK(!tooHigh.fill() && !tooHigh.extent());
}

TEST("a box whose extent is no number of 64 bits has none") {
  std::minstd_rand random(2);
  const uint64_t numbers[] = {
      0, 1, 2, 7, uint64_t{1} << 20, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX - 1, UINT64_MAX};
  for (int i = 0; i < 50'000; ++i) {
    std::array<uint64_t, 8> n;
    for (uint64_t& each : n) each = numbers[random() % std::size(numbers)];
    const Box box{.address = 0,
                  .pitch = n[0],
                  .rows = n[1],
                  .x = n[2],
                  .y = n[3],
                  .z = n[4],
                  .width = n[5],
                  .height = n[6],
                  .depth = n[7]};
    const auto extent = box.extent();
    if (!extent) continue;
    // Only then: products of three such numbers cannot overflow 128 bits, so checking one after the other is
    // sufficient.
    using Wide = unsigned __int128;
    const Wide stride = extent->rowStride;
    const Wide slice = stride * box.rows;
    CHECK(slice <= UINT64_MAX);
    const Wide offset = slice * box.z + stride * box.y + box.x;
    const Wide bytes = slice * (box.depth - 1) + stride * (box.height - 1) + box.width;
    CHECK(offset <= UINT64_MAX && bytes <= UINT64_MAX);
    CHECK(extent->offset == offset && extent->bytes == bytes);
  }
}

TEST("what is the session's reaches the driver as it is, and nothing beside it") {
  Fixture f;
  CUdeviceptr address = 0;
  CHECK_EQ(f.arenas[0]->allocate(4096, address), CUDA_SUCCESS);
  const uint64_t base = f.arenas[0]->base(), end = base + f.arenas[0]->reserved();
  SessionRange out;
  CHECK_EQ(f.gate.reach(wire::Address(address), 4096, out), CUDA_SUCCESS);
  CHECK(out.device() == address && out.bytes() == 4096 && !out.isHost());
  CHECK(f.reaches(end - 1, 1));
  CHECK(!f.reaches(end - 1, 2));
  CHECK(!f.reaches(base - 1, 2));
  CHECK(!f.reaches(base, UINT64_MAX));
  CHECK(!f.reaches(UINT64_MAX, 1));
  const std::array<std::byte, 64> own{};
  CHECK(!f.reaches(reinterpret_cast<uint64_t>(own.data()), 1));
  // Null stays null, however long.
  CHECK_EQ(f.gate.reach(wire::Address(0), 4096, out), CUDA_SUCCESS);
  CHECK(out.device() == 0 && out.bytes() == 0);
  // A range without bytes accesses nothing, whatever the address.
  CHECK_EQ(f.gate.reach(wire::Address(reinterpret_cast<uint64_t>(own.data())), 0, out), CUDA_SUCCESS);
  CHECK(out.device() == 0 && out.bytes() == 0);
  // An offset can leave the range just as a length can.
  CHECK(f.gate.reach(Box{.address = address, .x = reinterpret_cast<uint64_t>(own.data()) - address, .width = 1}, out) !=
        CUDA_SUCCESS);
}

TEST("reservations one behind the other are one, and are nobody's when they end") {
  Fixture f;
  CUdeviceptr first = 0, second = 0;
  CHECK_EQ(f.virtualMemory.reserve(4 * kGranule, 0, 0, first), CUDA_SUCCESS);
  CHECK(f.reaches(first, 4 * kGranule));
  CHECK(!f.reaches(first, 4 * kGranule + 1));
  if (f.virtualMemory.reserve(kGranule, 0, first + 4 * kGranule, second) == CUDA_SUCCESS &&
      second == first + 4 * kGranule) {
    CHECK(f.reaches(first, 5 * kGranule));
    CHECK(f.reaches(second - 1, 2));
    CHECK_EQ(f.virtualMemory.unreserve(second, kGranule), CUDA_SUCCESS);
  }
  CHECK(!f.reaches(first, 4 * kGranule + 1));
  CHECK_EQ(f.virtualMemory.unreserve(first, 4 * kGranule), CUDA_SUCCESS);
  CHECK(!f.reaches(first, 1));
}

TEST("memory of a graph is the session's as long as the graph has it") {
  Fixture f;
  auto allocation = std::make_shared<GraphAllocation>();
  allocation->bytes = 4096;
  f.graphMemory[0x7000'0000] = allocation;
  CHECK(f.reaches(0x7000'0000, 4096));
  CHECK(!f.reaches(0x7000'0000, 4097));
  allocation.reset();
  CHECK(!f.reaches(0x7000'0000, 1));
}

TEST("pinned memory is host memory, to its last byte, and stays where a graph was given it") {
  Fixture f;
  f.hostRuns.add(0x10000, {.bytes = 8192});
  f.hostRuns.add(0x20000, {.bytes = 4096});
  f.hostRuns.add(0x30000, {.bytes = 4096});
  SessionRange out;
  CHECK_EQ(f.gate.reach(wire::Address(0x10000 + 8191), 1, out), CUDA_SUCCESS);
  CHECK(out.isHost() && reinterpret_cast<uint64_t>(out.host()) == 0x10000 + 8191);
  CHECK(!f.reaches(0x10000 + 8191, 2));
  CHECK(f.gate.device(wire::Address(0x10000), 1, out) != CUDA_SUCCESS);
  CHECK(f.hostRuns.remove(0x10000));
  CHECK(!f.reaches(0x10000, 1));
  // For a node, and for anything while a capture is open.
  CHECK_EQ(f.gate.reach(wire::Address(0x20000), 8, out, true), CUDA_SUCCESS);
  f.isCapturing = true;
  CHECK(f.reaches(0x30000, 8));
  f.isCapturing = false;
  CHECK(!f.hostRuns.remove(0x20000) && !f.hostRuns.remove(0x30000));
  CHECK(!f.reaches(0x20000, 1));
  CHECK_EQ(f.hostRuns.takeForgotten().size(), 2u);
  CHECK(!f.hostRuns.hasForgotten());
  // Addresses that only ended graphs held are treated as unused.
  f.hostRuns.add(0x20000, {.bytes = 4096});
  CHECK_EQ(f.gate.host(wire::Address(0x20000), 8, out, true), CUDA_SUCCESS);
  f.hostRuns.forgetGraphs();
  CHECK(f.hostRuns.remove(0x20000));
}

}  // namespace
}  // namespace millpond::worker
