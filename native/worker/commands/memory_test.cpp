// SPDX-License-Identifier: Apache-2.0
// Device memory within its limits, frees that wait for streams, and pinned memory that client and worker both map.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "testing/check.h"
#include "worker/session/executor.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

TEST("memory that is freed while a stream is busy holds up nobody but who needs it") {
  ExecutorFixture f(Carrier::kSharedMemory);
  f.makeStream(1);
  f.makeStream(2);
  const CUdeviceptr held = f.allocate(ExecutorFixture::kLimit - 4 * kMi);
  const CUdeviceptr small = f.allocate(kMi);
  f.fake().hold(1);
  CHECK(f.fill(held, 1, 100, ExecutorFixture::stream(1)));
  CHECK(f.free(held));
  std::atomic<int> done{0};
  std::thread allocator([&] {
    // Fits only when the freed memory has been returned.
    f.allocate(ExecutorFixture::kLimit - 4 * kMi);
    ++done;
  });
  std::thread asker([&] {
    uint64_t available = 0, total = 0;
    CHECK_EQ(f.memoryInfo(available, total), 0);
    CHECK_EQ(total, ExecutorFixture::kLimit);
    ++done;
  });
  for (int i = 0; i < 300; ++i) {
    CHECK(f.fill(small, static_cast<uint8_t>(i), 1000, ExecutorFixture::stream(2)));
    CHECK_EQ(f.syncStream(ExecutorFixture::stream(2)), 0);
  }
  CHECK(f.fake().mappedRuns() >= 2);  // no memory was freed while the kernel used it
  CHECK_EQ(done.load(), 0);
  f.fake().release(1);
  allocator.join();
  asker.join();
}

TEST("memory is limited, counted and given back") {
  ExecutorFixture f(Carrier::kSharedMemory);
  uint64_t available = 0, total = 0;
  CHECK_EQ(f.memoryInfo(available, total), 0);
  CHECK_EQ(available, ExecutorFixture::kLimit);
  CHECK_EQ(total, ExecutorFixture::kLimit);
  CUdeviceptr address = 0;
  CHECK_EQ(f.allocate(ExecutorFixture::kLimit + 1, address), CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr whole = f.allocate(ExecutorFixture::kLimit);
  CHECK_EQ(f.allocate(1, address), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(f.allocate(kMi, address, 2), 0);  // the other device has its own limit
  CHECK(f.free(whole));
  const CUdeviceptr again = f.allocate(ExecutorFixture::kLimit);
  CHECK(f.free(again));
  CHECK_EQ(f.memoryInfo(available, total), 0);
  CHECK_EQ(available, ExecutorFixture::kLimit);
  // From the wrong context, twice, and memory that never existed.
  CHECK(f.free(address, 1));
  CHECK_EQ(f.memoryInfo(available, total, 2), 0);
  CHECK_EQ(available, ExecutorFixture::kLimit);
  CHECK_EQ(f.session().takeFailure(), 0);
  const CUdeviceptr two = f.allocate(kMi);
  CHECK(f.free(two));
  CHECK(f.free(two));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_VALUE);
  CHECK(f.free(12345));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_VALUE);
}

TEST("a running session's memory limits change all together, and never below what is in use") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    const CUdeviceptr memory = f.allocate(20 * kMi, 2);
    uint64_t available = 0, total = 0;

    const Status refused = f.setMemoryLimits({16 * kMi, 16 * kMi});
    CHECK(!refused);
    CHECK_EQ(refused.error().message, "its programs have 20 MiB in use on device 1, more than the new limit of 16 MiB");
    CHECK_EQ(f.memoryInfo(available, total), 0);
    CHECK_EQ(total, ExecutorFixture::kLimit);

    CHECK(bool(f.setMemoryLimits({16 * kMi, 128 * kMi})));
    CHECK_EQ(f.memoryInfo(available, total), 0);
    CHECK_EQ(total, 16 * kMi);
    CHECK_EQ(f.memoryInfo(available, total, 2), 0);
    CHECK_EQ(total, 128 * kMi);
    CHECK_EQ(available, 108 * kMi);
    CUdeviceptr more = 0;
    CHECK_EQ(f.allocate(18 * kMi, more), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(f.allocate(100 * kMi, more, 2), 0);

    CHECK(f.free(memory, 2));
    CHECK(f.free(more, 2));
    CHECK_EQ(f.memoryInfo(available, total, 2), 0);
    CHECK(bool(f.setMemoryLimits({16 * kMi, 2 * kMi})));
    CHECK(!f.setMemoryLimits({16 * kMi}));
    CHECK(f.finish().ok);
  }
}

TEST("many small frees are given back although nothing else happens") {
  ExecutorFixture f(Carrier::kSharedMemory);
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 1000; ++i) held.push_back(f.allocate(5000));
  for (const CUdeviceptr each : held) CHECK(f.free(each));
  waitUntil("everything is free", [&] { return f.fake().usedBytes() == 0; });
}

TEST("pinned memory is shared, page by page, and only where nothing lies") {
  ExecutorFixture f(Carrier::kSharedMemory);
  constexpr size_t kBytes = 64 * 4096;
  void* place = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(place != MAP_FAILED);
  cmd::HostAlloc command{};
  command.bytes = kBytes;
  command.address = reinterpret_cast<uint64_t>(place);
  CHECK_EQ(f.wait(command), CUDA_ERROR_ALREADY_MAPPED);
  CHECK_EQ(::munmap(place, kBytes), 0);
  CHECK_EQ(f.wait(command), 0);
  auto file = f.session().receiveFile();
  CHECK(bool(file));
  // The other end of this mapping is in the same process here.
  void* mine = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  CHECK(mine != MAP_FAILED);
  const auto data = pattern(4, kBytes);
  std::memcpy(mine, data.data(), kBytes);
  const CUdeviceptr memory = f.allocate(kBytes);
  cmd::CopyHostShared copy{};
  copy.deviceAddress = memory;
  copy.hostAddress = command.address;
  copy.bytes = kBytes;
  copy.direction = 1;
  CHECK(f.post(copy, 1));
  std::vector<std::byte> back(kBytes);
  CHECK_EQ(f.download(back, memory), 0);
  CHECK(back == data);
  CHECK(f.fill(memory, 8, kBytes));
  copy.direction = 2;
  CHECK_EQ(f.wait(copy), 0);
  CHECK(static_cast<std::byte*>(mine)[kBytes - 1] == std::byte{8});
  ::munmap(mine, kBytes);
  const size_t registered = f.fake().registeredRuns();
  cmd::HostFree end{};
  end.address = command.address;
  CHECK_EQ(f.wait(end), 0);
  CHECK_EQ(f.fake().registeredRuns(), registered - 1);
  // The address is free again.
  CHECK_EQ(f.wait(command), 0);
  CHECK(bool(f.session().receiveFile()));
  // More than the machine has.
  command.bytes = uint64_t{1} << 50;
  command.address = reinterpret_cast<uint64_t>(place) + (uint64_t{1} << 40);
  CHECK_EQ(f.wait(command), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST("a session that goes on has the pinned memory of the one before from its file, at the same address") {
  constexpr Parking kResumed{int64_t{3600} * 1'000'000'000, true};
  ExecutorFixture f(Carrier::kSharedMemory, 2, "", nullptr, nullptr, kResumed);
  constexpr size_t kBytes = 4 * 4096;
  const UniqueFd file(::memfd_create("pinned", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(::ftruncate(file.get(), kBytes) == 0 && ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  const auto data = pattern(5, kBytes);
  CHECK_EQ(::pwrite(file.get(), data.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  void* place = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(place != MAP_FAILED);
  cmd::HostKeep keep{};
  keep.bytes = kBytes;
  keep.address = reinterpret_cast<uint64_t>(place);
  // The address is occupied.
  CHECK(bool(f.session().sendFile(file.get())));
  CHECK(f.post(keep, 1));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_ALREADY_MAPPED);
  CHECK_EQ(::munmap(place, kBytes), 0);
  const size_t registered = f.fake().registeredRuns();
  CHECK(bool(f.session().sendFile(file.get())));
  CHECK(f.post(keep, 1));
  f.marker();
  CHECK_EQ(f.session().failure(), 0);
  CHECK_EQ(f.fake().registeredRuns(), registered + 1);
  CHECK(std::memcmp(place, data.data(), kBytes) == 0);
  cmd::HostFree end{};
  end.address = keep.address;
  CHECK_EQ(f.wait(end), 0);
  CHECK_EQ(f.fake().registeredRuns(), registered);
  CHECK(f.finish().ok);
}

TEST("pinned memory that is the worker's alone lies where it is wanted, if nothing does, over both transports") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    constexpr size_t kBytes = 4 * 4096;
    void* place = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    cmd::HostAlloc command{};
    command.bytes = kBytes;
    command.address = reinterpret_cast<uint64_t>(place);
    command.isPrivate = 1;
    CHECK_EQ(f.wait(command), CUDA_ERROR_ALREADY_MAPPED);
    CHECK_EQ(::munmap(place, kBytes), 0);
    const size_t registered = f.fake().registeredRuns();
    CHECK_EQ(f.wait(command), 0);
    CHECK_EQ(f.fake().registeredRuns(), registered + 1);
    static_cast<volatile std::byte*>(place)[kBytes - 1] = std::byte{1};
    CHECK_EQ(f.wait(command), CUDA_ERROR_ALREADY_MAPPED);
    cmd::HostFree end{};
    end.address = command.address;
    CHECK_EQ(f.wait(end), 0);
    CHECK_EQ(f.fake().registeredRuns(), registered);
    command.bytes = uint64_t{1} << 50;
    CHECK_EQ(f.wait(command), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(f.finish().ok);
  }
}

}  // namespace
}  // namespace millpond::worker
