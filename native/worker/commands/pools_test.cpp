// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory in a session: only an allocation that needs memory still in use waits for the device.
#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kPool = 5;

struct PoolFixture : ExecutorFixture {
  explicit PoolFixture(Carrier carrier) : ExecutorFixture(carrier) {
    cmd::PoolCreate command{};
    command.pool = kPool;
    CHECK(post(command, 1));
    makeStream(1);
    makeStream(2);
    marker();
  }
  int32_t take(uint64_t bytes, CUdeviceptr& address, uint32_t onStream) {
    cmd::PoolAlloc command{};
    command.pool = kPool;
    command.bytes = bytes;
    command.stream = stream(onStream);
    cmd::PoolAllocReply reply{};
    Session::Answer answer;
    answer.body = std::as_writable_bytes(std::span(&reply, 1));
    const int32_t result = wait(command, 1, answer);
    address = reply.address;
    return result;
  }
  CUdeviceptr take(uint64_t bytes, uint32_t onStream) {
    CUdeviceptr address = 0;
    CHECK_EQ(take(bytes, address, onStream), 0);
    return address;
  }
  void giveBack(CUdeviceptr address, uint32_t onStream) {
    cmd::PoolFree command{};
    command.address = address;
    command.stream = stream(onStream);
    CHECK(post(command, 1));
  }
};

TEST("memory freed in a busy stream is used again there at once, and by others when the stream is done") {
  for (const Carrier carrier : kCarriers) {
    PoolFixture f(carrier);
    const CUdeviceptr p = f.take(4 * kMi, 1);
    f.fake().hold(1);
    CHECK(f.fill(p, 7, 4 * kMi, ExecutorFixture::stream(1)));
    f.giveBack(p, 1);
    const CUdeviceptr other = f.take(4 * kMi, 2);
    CHECK(other != p);
    CHECK_EQ(f.take(4 * kMi, 1), p);
    f.giveBack(p, 1);
    f.giveBack(other, 2);
    f.marker();
    CHECK_EQ(f.fake().usedBytes(), 8 * kMi);
    f.fake().release(1);
    CHECK_EQ(f.wait(cmd::ContextSync{}), 0);
    uint64_t available = 0, total = 0;
    CHECK_EQ(f.memoryInfo(available, total), 0);
    CHECK_EQ(available, ExecutorFixture::kLimit);
    CHECK_EQ(f.fake().usedBytes(), 0u);
    CHECK_EQ(f.session().failure(), 0);
    CHECK(f.finish().ok);
  }
}

TEST("who needs memory that a stream still uses waits for that stream, and holds up nobody") {
  PoolFixture f(Carrier::kSharedMemory);
  const uint64_t most = ExecutorFixture::kLimit;
  const CUdeviceptr p = f.take(most, 1);
  f.fake().hold(1);
  CHECK(f.fill(p, 7, kMi, ExecutorFixture::stream(1)));
  f.giveBack(p, 1);
  CUdeviceptr pooled = 0;
  std::thread other([&] { CHECK_EQ(f.take(most / 2, pooled, 2), 0); });
  std::thread ordinary([&] { f.allocate(most / 4); });
  f.marker();
  CHECK_EQ(f.syncStream(ExecutorFixture::stream(2)), 0);
  f.fake().release(1);
  other.join();
  ordinary.join();
  CUdeviceptr none = 0;
  CHECK_EQ(f.take(most / 2, none, 2), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(f.finish().ok);
}

TEST("what is not in use is not freed, and a stranger's stream or a second pool of one number ends the session") {
  PoolFixture f(Carrier::kSharedMemory);
  const CUdeviceptr p = f.take(1000, 1);
  f.giveBack(p, 1);
  f.giveBack(p, 1);
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_VALUE);
  // Memory outside pools may be freed this way, once.
  const CUdeviceptr ordinary = f.allocate(1000);
  f.giveBack(ordinary, 2);
  f.marker();
  CHECK_EQ(f.session().takeFailure(), 0);
  f.giveBack(ordinary, 2);
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_VALUE);
  // Freed by its address like any other.
  const CUdeviceptr q = f.take(3 * kMi, 1);
  CHECK(f.free(q));
  f.giveBack(q, 1);
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_VALUE);
  cmd::PoolCreate again{};
  again.pool = kPool;
  CHECK(f.post(again, 1));
  CHECK(!f.ended().ok);
}

}  // namespace
}  // namespace millpond::worker
