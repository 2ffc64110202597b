// SPDX-License-Identifier: Apache-2.0
// Memory mapped to sparse arrays counts until the device has finished with it, even if the program has released it.
#include <array>

#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

uint64_t arrayHandle(uint32_t n) { return handle::make(HandleKind::kArray, 2000 + n, 1); }

struct SparseFixture : ExecutorFixture {
  using ExecutorFixture::ExecutorFixture;

  int32_t makeArray(uint32_t n, unsigned flags = CUDA_ARRAY3D_SPARSE) {
    cmd::ArrayCreate command{};
    command.handle = arrayHandle(n);
    command.width = command.height = 4096;
    command.format = CU_AD_FORMAT_UNSIGNED_INT8;
    command.channels = 1;
    command.flags = flags;
    command.elementBytes = 1;
    return wait(command);
  }
  void endArray(uint32_t n) {
    cmd::ArrayDestroy command{};
    command.handle = arrayHandle(n);
    CHECK(post(command, 1));
  }
  void makeMemory(uint64_t memory) {
    cmd::VmCreate command{};
    command.memory = memory;
    command.bytes = kGranule;
    CHECK_EQ(wait(command), 0);
  }
  void release(uint64_t memory) {
    cmd::VmRelease command{};
    command.memory = memory;
    CHECK(post(command, 1));
  }
  static CUarrayMapInfo tile(uint32_t array, unsigned column, uint64_t memory) {
    CUarrayMapInfo entry{};
    entry.resourceType = CU_RESOURCE_TYPE_ARRAY;
    entry.resource.array = reinterpret_cast<CUarray>(arrayHandle(array));
    entry.subresource.sparseLevel = {0, 0, column, 0, 0, 64, 64, 1};
    entry.memOperationType = memory ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    entry.memHandle.memHandle = memory;
    entry.deviceBitMask = 1;
    return entry;
  }
  template <size_t n>
  int32_t map(const std::array<CUarrayMapInfo, n>& entries, uint32_t streamNumber = 0) {
    cmd::ArrayMap command{};
    command.stream = stream(streamNumber);
    return wait(command, 1, std::as_bytes(std::span(entries)));
  }
  uint64_t available() {
    uint64_t free = 0, total = 0;
    CHECK_EQ(memoryInfo(free, total, 1), 0);
    return free;
  }
};

TEST("a sparse array takes nothing, and its tiles count until they are unmapped and the device is done with them") {
  for (const Carrier carrier : kCarriers) {
    SparseFixture f(carrier);
    f.makeStream(1);
    const uint64_t before = f.available();
    CHECK_EQ(f.makeArray(1), 0);
    CHECK_EQ(f.available(), before);
    f.makeMemory(1);
    f.makeMemory(2);
    CHECK_EQ(f.map(std::array{f.tile(1, 0, 1), f.tile(1, 64, 2)}), 0);
    CHECK_EQ(f.fake().tiles(), 2u);
    f.release(1);
    f.release(2);
    CHECK_EQ(f.available(), before - 2 * kGranule);
    CHECK_EQ(f.fake().usedBytes(), 2 * kGranule);
    // The stream reaches it later; until then no memory is returned.
    f.fake().hold(1);
    CHECK_EQ(f.map(std::array{f.tile(1, 0, 0)}, 1), 0);
    f.marker();
    CHECK_EQ(f.fake().usedBytes(), 2 * kGranule);
    f.fake().release(1);
    CHECK_EQ(f.available(), before - kGranule);
    CHECK_EQ(f.fake().usedBytes(), kGranule);
    f.endArray(1);
    CHECK_EQ(f.available(), before);
    CHECK_EQ(f.fake().usedBytes(), 0u);
    CHECK(f.finish().ok);
  }
}

TEST("memory that another takes the place of is free again") {
  SparseFixture f(Carrier::kSharedMemory);
  const uint64_t before = f.available();
  CHECK_EQ(f.makeArray(1), 0);
  for (uint64_t memory = 1; memory <= 3; ++memory) {
    f.makeMemory(memory);
    CHECK_EQ(f.map(std::array{f.tile(1, 0, memory)}), 0);
    f.release(memory);
  }
  CHECK_EQ(f.available(), before - kGranule);
  CHECK_EQ(f.fake().usedBytes(), kGranule);
  CHECK(f.finish().ok);
}

TEST("a list that the driver refuses counts what may have been mapped, until the array ends") {
  SparseFixture f(Carrier::kSharedMemory);
  const uint64_t before = f.available();
  CHECK_EQ(f.makeArray(1), 0);
  f.makeMemory(1);
  f.fake().failNext("cuMemMapArrayAsync", CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(f.map(std::array{f.tile(1, 0, 1)}), static_cast<int32_t>(CUDA_ERROR_INVALID_VALUE));
  f.release(1);
  CHECK_EQ(f.available(), before - kGranule);
  f.endArray(1);
  CHECK_EQ(f.available(), before);
  CHECK(f.finish().ok);
}

TEST("unknown memory, operations and devices are refused, and arrays of nobody end the session") {
  SparseFixture f(Carrier::kSharedMemory);
  CHECK_EQ(f.makeArray(1), 0);
  const auto invalid = static_cast<int32_t>(CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(f.map(std::array{f.tile(1, 0, 9)}), invalid);
  CUarrayMapInfo entry = f.tile(1, 0, 0);
  entry.memOperationType = static_cast<CUmemOperationType>(7);
  CHECK_EQ(f.map(std::array{entry}), invalid);
  entry = f.tile(1, 0, 0);
  entry.deviceBitMask = 3;
  CHECK_EQ(f.map(std::array{entry}), invalid);
  entry = f.tile(1, 0, 0);
  entry.resourceType = CU_RESOURCE_TYPE_LINEAR;
  CHECK_EQ(f.map(std::array{entry}), invalid);
  f.map(std::array{f.tile(2, 0, 0)});
  CHECK(!f.ended().ok);
}

}  // namespace
}  // namespace millpond::worker
