// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/memory_pools.h"

#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kPoolHandle = 77;
constexpr MemoryPools::StreamKey kOne{1, 1}, kTwo{2, 1};

MemoryPools withPool() {
  MemoryPools pools;
  CHECK(pools.create(kPoolHandle, 0, 0));
  return pools;
}

TEST("a block is used again at once in its stream, elsewhere when its free has happened") {
  MemoryPools pools = withPool();
  std::vector<MemoryPools::Block> released;
  CHECK(pools.setThreshold(kPoolHandle, 1 << 20));
  pools.add({0x1000, 1024, kPoolHandle}, 1024);
  CHECK(!pools.reuse(kPoolHandle, 1024, kOne, 1024));
  CHECK(pools.free(0x1000, kOne, 1));
  CHECK(!pools.free(0x1000, kOne, 2));
  CHECK(!pools.reuse(kPoolHandle, 1024, kTwo, 1024));
  CHECK_EQ(pools.reuse(kPoolHandle, 1024, kOne, 1024).value_or(0), 0x1000u);
  pools.happened(1, released);  // of the use before
  CHECK(pools.isUsed(0x1000));
  CHECK(pools.free(0x1000, kOne, 2));
  pools.happened(2, released);
  CHECK(!pools.reuse(kPoolHandle, 4096, kTwo, 4096));  // too large
  CHECK(!pools.reuse(kPoolHandle, 16, kTwo, 16));      // so small that most of the block would be wasted
  CHECK_EQ(pools.reuse(kPoolHandle, 1000, kTwo, 1000).value_or(0), 0x1000u);
  CHECK(released.empty());
}

TEST("what was asked for counts as used, not the block in which it lies") {
  MemoryPools pools = withPool();
  std::vector<MemoryPools::Block> released;
  CHECK(pools.setThreshold(kPoolHandle, 1 << 20));
  pools.add({0x1000, 4096, kPoolHandle}, 3072);
  CHECK_EQ(pools.usage(kPoolHandle)->used, 3072u);
  CHECK_EQ(pools.usage(kPoolHandle)->reserved, 4096u);
  CHECK(pools.free(0x1000, kOne, 1));
  CHECK_EQ(pools.usage(kPoolHandle)->used, 0u);
  CHECK_EQ(pools.reuse(kPoolHandle, 4096, kOne, 3584).value_or(0), 0x1000u);
  CHECK_EQ(pools.usage(kPoolHandle)->used, 3584u);
  CHECK_EQ(pools.usage(kPoolHandle)->usedHigh, 3584u);
  CHECK(pools.take(0x1000));
  CHECK_EQ(pools.usage(kPoolHandle)->used, 0u);
  CHECK(released.empty());
}

TEST("a synchronisation gives back what was freed before it and is over the threshold") {
  MemoryPools pools = withPool();
  std::vector<MemoryPools::Block> released;
  CHECK(pools.setThreshold(kPoolHandle, 2048));
  for (uint64_t n = 1; n <= 4; ++n) pools.add({n << 20, 1024, kPoolHandle}, 1024);
  for (uint64_t n = 1; n <= 3; ++n) CHECK(pools.free(n << 20, kOne, n));
  pools.happened(1, released);
  CHECK(released.empty());
  pools.synchronise(3, released);
  CHECK_EQ(released.size(), 1u);
  pools.happened(2, released);
  CHECK_EQ(released.size(), 2u);
  pools.happened(3, released);
  CHECK_EQ(released.size(), 2u);  // 2048 bytes are kept: one block in use and one idle
  CHECK(pools.free(uint64_t{4} << 20, kOne, 4));
  pools.happened(4, released);
  CHECK_EQ(released.size(), 2u);
  CHECK_EQ(pools.usage(kPoolHandle)->reserved, 2048u);
  CHECK_EQ(pools.usage(kPoolHandle)->reservedHigh, 4096u);
  CHECK_EQ(pools.usage(kPoolHandle)->used, 0u);
  CHECK_EQ(pools.usage(kPoolHandle)->usedHigh, 4096u);
  CHECK(pools.trim(kPoolHandle, 1500, released));
  CHECK_EQ(pools.usage(kPoolHandle)->reserved, 1024u);
}

TEST("a pool that is destroyed lives on in its blocks and gives them back one by one") {
  MemoryPools pools = withPool();
  std::vector<MemoryPools::Block> released;
  CHECK(!pools.create(kPoolHandle, 0, 0));
  pools.add({0x1000, 1024, kPoolHandle}, 1024);
  pools.add({0x2000, 1024, kPoolHandle}, 1024);
  CHECK(pools.free(0x1000, kOne, 1));
  CHECK(pools.destroy(kPoolHandle, released));
  CHECK(!pools.destroy(kPoolHandle, released));
  CHECK(!pools.device(kPoolHandle));
  CHECK(!pools.reuse(kPoolHandle, 1024, kOne, 1024));
  pools.happened(1, released);
  CHECK_EQ(released.size(), 1u);
  CHECK_EQ(pools.take(0x2000)->bytes, 1024u);
  CHECK(pools.create(kPoolHandle, 0, 0));  // nothing is left of the old pool
}

TEST("a pool that is made again had the highest use of the one before, and its idle blocks are counted by device") {
  MemoryPools pools;
  CHECK(!pools.raiseHigh(kPoolHandle, 1, 1));
  CHECK(pools.create(kPoolHandle, 1, 0));
  CHECK(pools.raiseHigh(kPoolHandle, 5000, 2000));
  pools.add({0x1000, 1024, kPoolHandle}, 1024);
  CHECK(pools.raiseHigh(kPoolHandle, 10, 10));
  CHECK_EQ(pools.usage(kPoolHandle)->reservedHigh, 5000u);
  CHECK_EQ(pools.usage(kPoolHandle)->usedHigh, 2000u);
  CHECK_EQ(pools.idleBlocks(1), 0u);
  CHECK(pools.setThreshold(kPoolHandle, 1 << 20));
  CHECK(pools.free(0x1000, kOne, 1));
  CHECK_EQ(pools.idleBlocks(1), 0u);  // its stream may still use it
  std::vector<MemoryPools::Block> released;
  pools.happened(1, released);
  CHECK_EQ(pools.idleBlocks(1), 1u);
  CHECK_EQ(pools.idleBlocks(0), 0u);
  CHECK(pools.all() == std::vector<uint64_t>{kPoolHandle});
  CHECK(pools.destroy(kPoolHandle, released));
  CHECK(pools.all().empty());
}

TEST("a pool with a maximum makes room from what nobody uses") {
  MemoryPools pools;
  std::vector<MemoryPools::Block> released;
  CHECK(pools.create(kPoolHandle, 0, 4096));
  CHECK(!pools.makeRoom(kPoolHandle, 4097, released));
  pools.add({0x1000, 1024, kPoolHandle}, 1024);
  pools.add({0x2000, 2048, kPoolHandle}, 2048);
  CHECK(!pools.makeRoom(kPoolHandle, 2048, released));
  CHECK(pools.free(0x2000, kOne, 1));
  CHECK(!pools.makeRoom(kPoolHandle, 2048, released));
  pools.happened(1, released);
  CHECK(released.empty());
  CHECK(pools.makeRoom(kPoolHandle, 2048, released));
  CHECK_EQ(released.size(), 1u);
}

}  // namespace
}  // namespace millpond::worker
