// SPDX-License-Identifier: Apache-2.0
// The virtual-memory commands: memory taken counts, memory returned waits for the device, and nothing else waits.
#include <functional>

#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

struct VmFixture : ExecutorFixture {
  using ExecutorFixture::ExecutorFixture;

  CUdeviceptr reserve(uint64_t bytes) {
    cmd::VmReserve command{};
    command.bytes = bytes;
    cmd::VmReserveReply reply{};
    Session::Answer answer;
    answer.body = std::as_writable_bytes(std::span(&reply, 1));
    CHECK_EQ(wait(command, 1, answer), 0);
    return reply.address;
  }
  void unreserve(CUdeviceptr address, uint64_t bytes) {
    cmd::VmUnreserve command{};
    command.address = address;
    command.bytes = bytes;
    CHECK(post(command, 1));
  }
  int32_t create(uint64_t memory, uint64_t bytes, int32_t device = 0) {
    cmd::VmCreate command{};
    command.memory = memory;
    command.bytes = bytes;
    command.device = device;
    return wait(command, static_cast<uint16_t>(device + 1));
  }
  void release(uint64_t memory) {
    cmd::VmRelease command{};
    command.memory = memory;
    CHECK(post(command, 1));
  }
  void map(CUdeviceptr address, uint64_t bytes, uint64_t memory, uint64_t offset = 0) {
    cmd::VmMap command{};
    command.address = address;
    command.bytes = bytes;
    command.memory = memory;
    command.offset = offset;
    CHECK(post(command, 1));
  }
  void unmap(CUdeviceptr address, uint64_t bytes) {
    cmd::VmUnmap command{};
    command.address = address;
    command.bytes = bytes;
    CHECK(post(command, 1));
  }
  void allow(CUdeviceptr address, uint64_t bytes, int32_t device = 0) {
    cmd::VmSetAccess command{};
    command.address = address;
    command.size = bytes;
    const int32_t access[] = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(post(command, 1, std::as_bytes(std::span(access))));
  }
  uint64_t available(uint16_t context = 1) {
    uint64_t free = 0, total = 0;
    CHECK_EQ(memoryInfo(free, total, context), 0);
    return free;
  }
  /// The latched failure, which this call reports.
  int32_t failure() {
    marker();
    return session().takeFailure();
  }
};

TEST("memory mapped side by side is one run to copies, and can be mapped twice") {
  for (const Carrier carrier : kCarriers) {
    VmFixture f(carrier);
    const CUdeviceptr base = f.reserve(8 * kGranule);
    for (uint64_t n = 0; n < 3; ++n) {
      CHECK_EQ(f.create(n + 1, kGranule), 0);
      f.map(base + n * kGranule, kGranule, n + 1);
    }
    f.map(base + 4 * kGranule, kGranule, 2);
    f.allow(base, 3 * kGranule);
    f.allow(base + 4 * kGranule, kGranule);
    for (uint64_t n = 1; n <= 3; ++n) f.release(n);
    const auto data = pattern(7, 3 * kGranule);
    CHECK(f.upload(base, data));
    std::vector<std::byte> back(data.size());
    CHECK_EQ(f.download(back, base), 0);
    CHECK(back == data);
    CHECK_EQ(f.failure(), 0);
    CHECK_EQ(f.available(), ExecutorFixture::kLimit - 3 * kGranule);
    // The second memory is mapped at yet another place.
    f.unmap(base, 3 * kGranule);
    CHECK_EQ(f.available(), ExecutorFixture::kLimit - kGranule);
    f.unmap(base + 4 * kGranule, kGranule);
    f.unreserve(base, 8 * kGranule);
    CHECK_EQ(f.available(), ExecutorFixture::kLimit);
    CHECK_EQ(f.fake().usedBytes(), 0u);
    CHECK_EQ(f.fake().reservations(), 0u);
    CHECK(f.finish().ok);
  }
}

TEST("no part of memory is mapped that it does not have") {
  VmFixture f(Carrier::kSharedMemory);
  const CUdeviceptr base = f.reserve(8 * kGranule);
  CHECK_EQ(f.create(1, 2 * kGranule), 0);
  const struct {
    uint64_t offset, bytes;
  } kParts[] = {{0, 3 * kGranule},
                {kGranule, 2 * kGranule},
                {2 * kGranule, kGranule},
                {~uint64_t{0}, kGranule},
                {~uint64_t{0} - kGranule + 1, 2 * kGranule},
                {uint64_t{1} << 63, kGranule}};
  for (const auto& part : kParts) {
    f.map(base, part.bytes, 1, part.offset);
    CHECK_EQ(f.failure(), CUDA_ERROR_INVALID_VALUE);
  }
  // The driver has seen none of them.
  CHECK_EQ(f.fake().mappedRuns(), 0u);
  f.map(base, 2 * kGranule, 1);
  CHECK_EQ(f.failure(), 0);
  CHECK_EQ(f.fake().mappedRuns(), 1u);
  CHECK(f.finish().ok);
}

TEST("made memory counts against the limit, mapped or not, together with all other memory of that device") {
  VmFixture f(Carrier::kSharedMemory);
  const uint64_t limit = ExecutorFixture::kLimit;
  CHECK_EQ(f.create(1, limit), 0);
  CHECK_EQ(f.create(2, kGranule), CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr address = 0;
  CHECK_EQ(f.allocate(1, address), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(f.create(2, limit, 1), 0);
  f.release(1);
  const CUdeviceptr allocated = f.allocate(kGranule);
  CHECK_EQ(f.create(3, limit), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(f.free(allocated));
  CHECK_EQ(f.create(3, limit), 0);
  CHECK_EQ(f.fake().usedBytes(), 2 * limit);
  f.fake().failNext("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  f.release(3);
  CHECK_EQ(f.create(4, kGranule), 0);  // queried again after the released memory is back
  CHECK(f.finish().ok);
}

TEST("unmapping waits for the device and holds nobody up; mapping there again does not wait either") {
  VmFixture f(Carrier::kSharedMemory);
  const CUdeviceptr base = f.reserve(4 * kGranule);
  CHECK_EQ(f.create(1, kGranule), 0);
  f.map(base, kGranule, 1);
  f.allow(base, kGranule);
  f.makeStream(1);
  f.marker();
  f.fake().hold(1);
  CHECK(f.fill(base, 3, kGranule, ExecutorFixture::stream(1)));
  f.unmap(base, kGranule);
  f.release(1);
  f.marker();
  CHECK_EQ(f.fake().mappedRuns(), 1u);
  // A second allocation goes elsewhere meanwhile.
  CHECK_EQ(f.create(2, kGranule), 0);
  f.map(base + kGranule, kGranule, 2);
  f.marker();
  CHECK_EQ(f.fake().mappedRuns(), 2u);
  f.fake().release(1);
  CHECK_EQ(f.available(), ExecutorFixture::kLimit - kGranule);
  CHECK_EQ(f.fake().mappedRuns(), 1u);

  f.fake().hold(1);
  CHECK(f.fill(f.allocate(100), 3, 100, ExecutorFixture::stream(1)));
  f.unmap(base + kGranule, kGranule);
  f.map(base + kGranule, kGranule, 2);
  f.allow(base + kGranule, kGranule);
  CHECK_EQ(f.failure(), 0);
  f.fake().release(1);
  f.unmap(base + kGranule, kGranule);
  f.unreserve(base, 4 * kGranule);
  CHECK_EQ(f.failure(), 0);
  CHECK(f.finish().ok);
}

TEST("what a waiting memory needs comes back when the device is done") {
  VmFixture f(Carrier::kSharedMemory);
  const uint64_t limit = ExecutorFixture::kLimit;
  const CUdeviceptr base = f.reserve(limit);
  CHECK_EQ(f.create(1, limit), 0);
  f.map(base, limit, 1);
  f.allow(base, limit);
  f.makeStream(1);
  f.marker();
  f.fake().hold(1);
  CHECK(f.fill(base, 3, limit, ExecutorFixture::stream(1)));
  f.release(1);
  f.unmap(base, limit);
  std::thread other([&] { CHECK_EQ(f.create(2, limit), 0); });
  f.marker();
  f.fake().release(1);
  other.join();
  CHECK_EQ(f.available(), 0u);
}

TEST("what is not the session's is refused: addresses, parts of mappings, memory that is gone") {
  VmFixture f(Carrier::kSharedMemory);
  const CUdeviceptr base = f.reserve(4 * kGranule);
  const CUdeviceptr own = f.allocate(4 * kMi);  // in the worker's arena
  const size_t runs = f.fake().mappedRuns();
  CHECK_EQ(f.create(1, 2 * kGranule), 0);
  const auto refused = [&](const char* what, const std::function<void()>& attempt) {
    attempt();
    if (f.failure() != CUDA_ERROR_INVALID_VALUE) testing::fail(__FILE__, __LINE__, std::string("taken: ") + what);
  };
  refused("a map into the arena", [&] { f.map(own, 2 * kGranule, 1); });
  refused("an unmap of the arena", [&] { f.unmap(own, 4 * kMi); });
  refused("access to the arena", [&] { f.allow(own, 4 * kMi); });
  refused("a map over the end", [&] { f.map(base + 3 * kGranule, 2 * kGranule, 1); });
  refused("a map of no memory", [&] { f.map(base, 2 * kGranule, 2); });
  refused("a map that wraps", [&] { f.map(base, ~uint64_t{0} - kGranule + 1, 1); });
  f.map(base, 2 * kGranule, 1);
  CHECK_EQ(f.failure(), 0);
  refused("a map over another", [&] { f.map(base + kGranule, 2 * kGranule, 1); });
  refused("half an unmap", [&] { f.unmap(base, kGranule); });
  refused("an unmap of more", [&] { f.unmap(base, 3 * kGranule); });
  refused("access to half", [&] { f.allow(base + kGranule, kGranule); });
  refused("an address free with mappings", [&] { f.unreserve(base, 4 * kGranule); });
  f.release(1);
  CHECK_EQ(f.failure(), 0);
  refused("a second release", [&] { f.release(1); });
  refused("a map of what is released", [&] { f.map(base + 2 * kGranule, 2 * kGranule, 1); });
  CHECK_EQ(f.fake().mappedRuns(), runs + 1);
  // A number in use, or an unknown device, is not a mistake that our client makes.
  CHECK_EQ(f.create(5, kGranule), 0);
  f.create(5, kGranule);
  CHECK(!f.ended().ok);
}

}  // namespace
}  // namespace millpond::worker
