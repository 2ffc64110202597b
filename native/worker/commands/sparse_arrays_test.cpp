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

  static cmd::ArrayCreate wanted(uint32_t n, unsigned flags) {
    cmd::ArrayCreate command{};
    command.handle = arrayHandle(n);
    command.width = command.height = 4096;
    command.format = CU_AD_FORMAT_UNSIGNED_INT8;
    command.channels = 1;
    command.flags = flags;
    return command;
  }
  int32_t makeArray(uint32_t n, unsigned flags = CUDA_ARRAY3D_SPARSE) { return wait(wanted(n, flags)); }
  void endArray(uint32_t n) { destroy(arrayHandle(n)); }
  void destroy(uint64_t array) {
    cmd::ArrayDestroy command{};
    command.handle = array;
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

TEST("an array whose size the driver does not report is charged by its description, with all levels") {
  SparseFixture f(Carrier::kSharedMemory);
  const uint64_t before = f.available();
  const auto charged = [&](cmd::ArrayCreate command) {
    if (command.levels) command.handle = handle::make(HandleKind::kMipmappedArray, 3000, 1);
    f.fake().failNext("cuArrayGetMemoryRequirements", CUDA_ERROR_NOT_SUPPORTED);
    const int32_t rc = f.wait(command);
    const uint64_t bytes = before - f.available();
    if (rc != 0) return static_cast<uint64_t>(-rc);
    f.destroy(command.handle);
    CHECK_EQ(f.available(), before);
    return bytes;
  };
  cmd::ArrayCreate command = f.wanted(1, 0);
  command.width = 100;
  command.height = 20;
  command.channels = 4;
  // Rows of whole 64 bytes, in blocks of 8.
  CHECK_EQ(charged(command), 448u * 24);
  command.levels = 3;
  CHECK_EQ(charged(command), 448u * 24 + 256 * 16 + 128 * 8);
  command.levels = 0;
  command.height = 0;
  CHECK_EQ(charged(command), 448u);
  command.height = 20;
  command.depth = 3;
  command.flags = CUDA_ARRAY3D_LAYERED;
  command.levels = 2;
  CHECK_EQ(charged(command), 3u * (448 * 24 + 256 * 16));
  command.flags = 0;
  CHECK_EQ(charged(command), 3u * 448 * 24 + 256 * 16);
  command.format = CU_AD_FORMAT_NV12;
  command.channels = 3;
  command.levels = 0;
  command.depth = 0;
  CHECK_EQ(charged(command), 2u * 128 * 24);
  // The size of these formats is unknown.
  const auto invalid = -static_cast<int64_t>(CUDA_ERROR_INVALID_VALUE);
  command.channels = 4;
  CHECK_EQ(static_cast<int64_t>(charged(command)), invalid);
  command.format = 0x91;
  CHECK_EQ(static_cast<int64_t>(charged(command)), invalid);
  command = f.wanted(1, 0);
  command.width = command.height = UINT64_MAX;
  CHECK_EQ(static_cast<int64_t>(charged(command)), -static_cast<int64_t>(CUDA_ERROR_OUT_OF_MEMORY));
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
