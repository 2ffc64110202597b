// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/memory_map.h"

#include "testing/check.h"

namespace millpond::client {
namespace {

MemoryRun device(uint64_t address, uint64_t bytes, unsigned flags = 0) {
  MemoryRun run;
  run.address = address;
  run.bytes = bytes;
  run.flags = flags;
  return run;
}

TEST("what was freed may not be used, what was never known may") {
  MemoryMap map;
  CHECK(map.mayUse(0x1000, 16));
  map.add(device(0x1000, 0x100));
  CHECK(map.mayUse(0x1000, 0x100));
  CHECK(map.mayUse(0x10ff, 1));
  CHECK(!map.mayUse(0x10ff, 2));
  CHECK(map.mayUse(0x1200, 2));
  CHECK(map.take(0x1000));
  CHECK(!map.mayUse(0x1000, 1));
  CHECK(!map.mayUse(0x10ff, 1));
  CHECK(map.mayUse(0x10ff, 0));
  CHECK(map.mayUse(0x1100, 1));
  CHECK(map.mayUse(0xfff, 1));
  CHECK(map.wasFreed(0x1080));
  CHECK(!map.wasFreed(0x1100));
}

TEST("freed neighbours are one, and what is allocated in their midst takes its part") {
  MemoryMap map;
  for (const uint64_t address : {0x1000u, 0x1100u, 0x1300u, 0x1200u}) map.add(device(address, 0x100));
  for (const uint64_t address : {0x1000u, 0x1300u, 0x1100u, 0x1200u}) CHECK(map.take(address));
  for (uint64_t address = 0x1000; address < 0x1400; address += 0x80) CHECK(!map.mayUse(address, 1));
  map.add(device(0x1180, 0x100));
  CHECK(map.mayUse(0x1180, 0x100));
  CHECK(!map.mayUse(0x117f, 1));
  CHECK(!map.mayUse(0x1280, 1));
  map.reuse(0x1000, 0x80);
  CHECK(map.mayUse(0x1000, 1));
  CHECK(!map.mayUse(0x1080, 1));
  map.reuse(0, 0x10000);
  CHECK(map.mayUse(0x1280, 1));
}

TEST("memory of pools, variables and mappings is not told to be freed") {
  MemoryMap map;
  MemoryRun pooled = device(0x1000, 0x100);
  pooled.pool = 5;
  map.add(pooled);
  map.add(device(0x2000, 0x100, MemoryRun::kBorrowed));
  map.add(device(0x3000, 0x100, MemoryRun::kMapped));
  for (const uint64_t address : {0x1000u, 0x2000u, 0x3000u}) {
    CHECK(map.take(address));
    CHECK(map.mayUse(address, 1));
  }
}

TEST("a variable that is known ends those whose place it takes") {
  MemoryMap map;
  for (const uint64_t address : {0x1000u, 0x1100u, 0x1200u, 0x1300u})
    map.add(device(address, 0x10, MemoryRun::kBorrowed));
  map.add(device(0x1008, 0x200, MemoryRun::kBorrowed));
  CHECK(map.mayUse(0x1100, 0x100));
  CHECK(map.mayUse(0x1200, 8));
  CHECK(!map.find(0x1000));
  CHECK(map.find(0x1300, 0x10));
  CHECK(!map.take(0x1100));
  // Adding the same run again changes nothing.
  map.add(device(0x1008, 0x200, MemoryRun::kBorrowed));
  CHECK_EQ(map.find(0x1108)->address, 0x1008u);
  // An allocation ends only when it is freed.
  map.add(device(0x4000, 0x10));
  map.add(device(0x3ff0, 0x100, MemoryRun::kBorrowed));
  CHECK(map.take(0x4000));
}

TEST("the end of a context frees what was allocated in it") {
  MemoryMap map;
  MemoryRun run = device(0x1000, 0x100);
  run.context = 1;
  map.add(run);
  run.address = 0x2000;
  run.context = 2;
  map.add(run);
  CHECK_EQ(map.dropDevice(1).size(), 1u);
  CHECK(!map.mayUse(0x1000, 1));
  CHECK(map.mayUse(0x2000, 1));
}

}  // namespace
}  // namespace millpond::client
