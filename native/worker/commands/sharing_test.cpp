// SPDX-License-Identifier: Apache-2.0
// Memory of pools that sessions share. Memory that a session opens from its own pool is placed and counted like any
// other.
#include <cstring>

#include "testing/check.h"
#include "worker/testing/executor_fixture.h"
#include "worker/testing/sharing_worker.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kMade = 5;
constexpr uint64_t kOther = 6;
constexpr uint64_t kOpened = 7;
constexpr Sharing::Secret kSecret{std::byte{1}};

struct Handle {
  uint8_t bytes[64];
  bool operator==(const Handle&) const = default;
};

struct SharedPools {
  const SharingNode node;
  SharingWorker worker{node, "w-a", kSecret};
  ExecutorFixture f;

  explicit SharedPools(Carrier carrier) : f(carrier, 1, "", nullptr, &worker.sharing) {
    for (const uint64_t pool : {kMade, kOther}) {
      cmd::PoolCreate command{};
      command.pool = pool;
      CHECK(f.post(command, 1));
    }
    f.makeStream(1);
    f.makeStream(2);
  }

  template <typename C, typename R>
  int32_t ask(const C& command, R& reply) {
    Session::Answer answer;
    answer.body = std::as_writable_bytes(std::span(&reply, 1));
    return f.wait(command, 1, answer);
  }
  int32_t take(uint64_t bytes, CUdeviceptr& address, uint64_t pool) {
    cmd::PoolAlloc command{};
    command.pool = pool;
    command.bytes = bytes;
    cmd::PoolAllocReply reply{};
    const int32_t result = ask(command, reply);
    address = reply.address;
    return result;
  }
  CUdeviceptr take(uint64_t bytes, uint64_t pool = kMade) {
    CUdeviceptr address = 0;
    CHECK_EQ(take(bytes, address, pool), 0);
    return address;
  }
  void giveBack(CUdeviceptr address, uint32_t onStream) {
    cmd::PoolFree command{};
    command.address = address;
    command.stream = ExecutorFixture::stream(onStream);
    CHECK(f.post(command, 1));
  }
  void destroy(uint64_t pool) {
    cmd::PoolDestroy command{};
    command.pool = pool;
    CHECK(f.post(command, 1));
  }
  Handle share(uint64_t pool) {
    cmd::PoolShare command{};
    command.pool = pool;
    cmd::PoolShareReply reply{};
    CHECK_EQ(ask(command, reply), 0);
    Handle handle;
    std::memcpy(handle.bytes, reply.handle, sizeof handle.bytes);
    return handle;
  }
  int32_t sharePointer(CUdeviceptr address, uint64_t bytes, Handle& handle) {
    cmd::PoolSharePointer command{};
    command.address = address;
    command.bytes = bytes;
    cmd::PoolSharePointerReply reply{};
    const int32_t result = ask(command, reply);
    std::memcpy(handle.bytes, reply.handle, sizeof handle.bytes);
    return result;
  }
  Handle sharePointer(CUdeviceptr address, uint64_t bytes) {
    Handle handle;
    CHECK_EQ(sharePointer(address, bytes, handle), 0);
    return handle;
  }
  int32_t open(const Handle& handle, uint64_t pool, uint64_t& number) {
    cmd::PoolOpen command{};
    command.pool = pool;
    std::memcpy(command.handle, handle.bytes, sizeof handle.bytes);
    cmd::PoolOpenReply reply{};
    const int32_t result = ask(command, reply);
    number = reply.pool;
    return result;
  }
  int32_t open(const Handle& handle, uint64_t pool = kOpened) {
    uint64_t number = 0;
    return open(handle, pool, number);
  }
  int32_t openPointer(const Handle& handle, CUdeviceptr& address, uint64_t pool = kOpened) {
    cmd::PoolOpenPointer command{};
    command.pool = pool;
    std::memcpy(command.handle, handle.bytes, sizeof handle.bytes);
    cmd::PoolOpenPointerReply reply{};
    const int32_t result = ask(command, reply);
    address = reply.address;
    return result;
  }
  CUdeviceptr openPointer(const Handle& handle) {
    CUdeviceptr address = 0;
    CHECK_EQ(openPointer(handle, address), 0);
    return address;
  }
  uint64_t available() {
    uint64_t bytes = 0, total = 0;
    CHECK_EQ(f.memoryInfo(bytes, total), 0);
    return bytes;
  }
  /// The result of a command for which no thread waited.
  int32_t failure() {
    f.marker();
    return f.session().takeFailure();
  }
};

TEST("what is opened of a pool is mapped once and counts once, until it is freed, in the order of the streams") {
  for (const Carrier carrier : kCarriers) {
    SharedPools s(carrier);
    const CUdeviceptr a = s.take(1000), b = s.take(3000);
    CHECK_EQ(s.open(s.share(kMade)), 0);
    const Handle ofA = s.sharePointer(a, 1000);
    CHECK(s.sharePointer(a, 1000) == ofA);
    const CUdeviceptr openedA = s.openPointer(ofA);
    CHECK_EQ(s.openPointer(ofA), openedA);
    const CUdeviceptr openedB = s.openPointer(s.sharePointer(b, 3000));
    CHECK(openedA != a);
    CHECK_EQ(openedB - openedA, b - a);
    CHECK_EQ(s.available(), ExecutorFixture::kLimit - 2 * kGranule);

    s.f.fake().hold(1);
    CHECK(s.f.fill(openedA, 7, 1000, ExecutorFixture::stream(1)));
    s.giveBack(openedA, 1);
    s.giveBack(openedB, 2);
    CHECK_EQ(s.failure(), 0);
    CHECK_EQ(s.f.fake().mappedRuns(), 2u);
    for (const CUdeviceptr each : {openedA, openedB}) {
      s.giveBack(each, 2);
      CHECK_EQ(s.failure(), CUDA_ERROR_INVALID_VALUE);
    }
    s.f.fake().release(1);
    CHECK_EQ(s.f.wait(cmd::ContextSync{}), 0);
    CHECK_EQ(s.available(), ExecutorFixture::kLimit - kGranule);
    CHECK_EQ(s.f.fake().mappedRuns(), 1u);
    CHECK(s.f.finish().ok);
  }
}

TEST("what has been freed is opened no more, whatever lies there now, nor is what is of another pool") {
  SharedPools s(Carrier::kSharedMemory);
  const Handle ofPool = s.share(kMade);
  CHECK_EQ(s.open(ofPool), 0);
  CUdeviceptr none = 0;
  const CUdeviceptr a = s.take(4 * kMi);
  const Handle first = s.sharePointer(a, 4 * kMi);
  s.giveBack(a, 0);
  CHECK_EQ(s.openPointer(first, none), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(s.take(4 * kMi), a);
  CHECK_EQ(s.openPointer(first, none), CUDA_ERROR_INVALID_VALUE);
  const Handle second = s.sharePointer(a, 4 * kMi);
  CHECK(second != first);
  CHECK(s.f.free(a));
  CHECK_EQ(s.openPointer(second, none), CUDA_ERROR_INVALID_VALUE);

  const CUdeviceptr ofOther = s.take(1000, kOther);
  Handle handle;
  CHECK_EQ(s.sharePointer(ofOther, 1000, handle), CUDA_ERROR_INVALID_VALUE);
  s.share(kOther);
  CHECK_EQ(s.openPointer(s.sharePointer(ofOther, 1000), none), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr b = s.take(1000);
  CHECK_EQ(s.openPointer(s.sharePointer(b, 1000), none, kMade), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(s.openPointer(ofPool, none), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(s.open(s.sharePointer(b, 1000), 8), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(s.take(1000, none, kOpened), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(s.sharePointer(s.f.allocate(1000), 1000, handle), CUDA_ERROR_INVALID_VALUE);
  s.destroy(kMade);
  CHECK_EQ(s.open(ofPool, 8), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(s.sharePointer(b, 1000, handle), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(s.failure(), 0);
  CHECK(s.f.finish().ok);
}

TEST("the memory of an opened pool outlives the pool, and whoever made it") {
  SharedPools s(Carrier::kSharedMemory);
  const CUdeviceptr a = s.take(4 * kMi);
  CHECK_EQ(s.open(s.share(kMade)), 0);
  const CUdeviceptr opened = s.openPointer(s.sharePointer(a, 4 * kMi));
  s.giveBack(a, 0);
  s.destroy(kMade);
  s.destroy(kOpened);
  CHECK_EQ(s.f.wait(cmd::ContextSync{}), 0);
  CHECK_EQ(s.available(), ExecutorFixture::kLimit - 4 * kMi);
  CHECK(s.f.fill(opened, 7, 4 * kMi));
  CHECK_EQ(s.f.wait(cmd::ContextSync{}), 0);
  CHECK(s.f.free(opened));
  CHECK_EQ(s.available(), ExecutorFixture::kLimit);
  CHECK_EQ(s.f.fake().usedBytes(), 0u);
  s.destroy(kOpened);
  CHECK_EQ(s.failure(), CUDA_ERROR_INVALID_VALUE);
  CHECK(s.f.finish().ok);
}

TEST("what is opened fits within the limit, if need be when what was freed has come back") {
  SharedPools s(Carrier::kSharedMemory);
  const uint64_t half = ExecutorFixture::kLimit / 2;
  const CUdeviceptr a = s.take(half);
  CHECK_EQ(s.open(s.share(kMade)), 0);
  const Handle handle = s.sharePointer(a, half);
  const CUdeviceptr other = s.take(kGranule, kOther);
  CUdeviceptr none = 0;
  CHECK_EQ(s.openPointer(handle, none), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(s.f.fake().mappedRuns(), 2u);
  s.f.fake().hold(1);
  CHECK(s.f.fill(other, 7, kGranule, ExecutorFixture::stream(1)));
  CHECK(s.f.free(other));
  s.f.marker();
  std::thread opens([&] { s.openPointer(handle); });
  s.f.marker();
  s.f.fake().release(1);
  opens.join();
  CHECK_EQ(s.available(), 0u);
  CHECK(s.f.finish().ok);
}

TEST("a pool that is opened again is the same one, and a new one when it was destroyed") {
  SharedPools s(Carrier::kSharedMemory);
  const Handle handle = s.share(kMade);
  CHECK_EQ(s.open(handle), 0);
  uint64_t number = 0;
  CHECK_EQ(s.open(handle, 8, number), 0);
  CHECK_EQ(number, kOpened);
  s.destroy(kOpened);
  CHECK_EQ(s.open(handle, 8, number), 0);
  CHECK_EQ(number, 8u);
  CHECK(s.f.finish().ok);
}

TEST("memory for the tiles of sparse arrays is made without a file, which drivers refuse, and all other with one") {
  SharedPools s(Carrier::kSharedMemory);
  for (const uint32_t usage : {0, CU_MEM_CREATE_USAGE_TILE_POOL}) {
    cmd::VmCreate command{};
    command.memory = usage + 1;
    command.bytes = kGranule;
    command.usage = usage;
    CHECK_EQ(s.f.wait(command), 0);
  }
  cmd::VmShare share{};
  share.memory = 1;
  cmd::VmShareReply reply{};
  CHECK_EQ(s.ask(share, reply), 0);
  CHECK(s.f.finish().ok);
}

TEST("a second pool of one number ends the session, and so does more than was allocated") {
  {
    SharedPools s(Carrier::kSharedMemory);
    const Handle handle = s.share(kMade);
    CHECK_EQ(s.open(handle), 0);
    s.open(s.share(kOther));
    CHECK(!s.f.ended().ok);
  }
  {
    SharedPools s(Carrier::kSharedMemory);
    const Handle handle = s.share(kMade);
    s.open(handle, kOther);
    CHECK(!s.f.ended().ok);
  }
  SharedPools s(Carrier::kSharedMemory);
  Handle handle = s.share(kMade);
  s.sharePointer(s.take(4 * kMi), 4 * kMi + 1, handle);
  CHECK(!s.f.ended().ok);
}

}  // namespace
}  // namespace millpond::worker
