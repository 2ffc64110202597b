// SPDX-License-Identifier: Apache-2.0
// The effects of a session's commands, and that none of them blocks the others.
#include "worker/session/executor.h"

#include <thread>

#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

TEST("data goes to the device and comes back, at any size") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    const CUdeviceptr memory = f.allocate(8 * kMi);
    uint64_t seed = 0;
    for (const size_t bytes : {size_t{1}, size_t{7}, size_t{8}, size_t{16384}, size_t{16385}, wire::kChunkBytes,
                               wire::kChunkBytes + 1, size_t{5'000'001}, size_t{8 * kMi}}) {
      const auto data = pattern(++seed, bytes);
      CHECK(f.upload(memory, data));
      std::vector<std::byte> back(bytes);
      CHECK_EQ(f.download(back, memory), 0);
      CHECK(back == data);
    }
    CHECK_EQ(f.session().failure(), 0);
    CHECK(f.finish().ok);
  }
}

TEST("a download that waits for its stream does not hold up one of another stream") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    // More copies than there are staging chunks.
    constexpr uint32_t kStuck = 20;
    const CUdeviceptr memory = f.allocate(8 * kMi);
    const auto data = pattern(1, 8 * kMi);
    CHECK(f.upload(memory, data));
    for (uint32_t n = 1; n <= kStuck + 1; ++n) f.makeStream(n);
    f.marker();
    const CUdeviceptr other = f.allocate(1000);
    for (uint32_t n = 1; n <= kStuck; ++n) {
      f.fake().hold(n);
      CHECK(f.fill(other, 1, 1000, ExecutorFixture::stream(n)));
    }
    std::deque<std::thread> threads;
    for (uint32_t n = 1; n <= kStuck; ++n)
      threads.emplace_back([&, n] {
        std::vector<std::byte> to(n % 2 ? 5 * kMi : 1000);
        CHECK_EQ(f.download(to, memory, ExecutorFixture::stream(n)), 0);
        CHECK(std::equal(to.begin(), to.end(), data.begin()));
      });
    waitUntil("some are stuck", [&] {
      size_t waiting = 0;  // the fills, and later work
      for (uint32_t n = 1; n <= kStuck; ++n) waiting += f.fake().waiting(n);
      return waiting > kStuck + 3;
    });
    std::vector<std::byte> to(7 * kMi);
    CHECK_EQ(f.download(to, memory, ExecutorFixture::stream(kStuck + 1)), 0);
    CHECK(std::equal(to.begin(), to.end(), data.begin()));
    for (uint32_t n = kStuck; n >= 1; --n) f.fake().release(n);
    for (auto& thread : threads) thread.join();
  }
}

TEST("a context waits for work of a stream that was idle when it was last asked") {
  ExecutorFixture f(Carrier::kSharedMemory);
  const CUdeviceptr memory = f.allocate(kMi);
  for (uint32_t n = 1; n <= 3; ++n) f.makeStream(n);
  for (uint32_t round = 0; round < 6; ++round) {
    CHECK_EQ(f.wait(cmd::ContextSync{}), 0);
    const uint32_t busy = 1 + round % 3;
    f.fake().hold(busy);
    CHECK(f.fill(memory, 1, 100, ExecutorFixture::stream(busy)));
    std::atomic<bool> done{false};
    std::thread waiter([&] {
      CHECK_EQ(f.wait(cmd::ContextSync{}), 0);
      done = true;
    });
    const uint32_t other = 1 + (round + 1) % 3;
    CHECK(f.fill(memory, 2, 100, ExecutorFixture::stream(other)));
    CHECK_EQ(f.syncStream(ExecutorFixture::stream(other)), 0);
    CHECK(!done);
    f.fake().release(busy);
    waiter.join();
  }
}

TEST("those who wait for a stream, an event or a context do not hold up others") {
  ExecutorFixture f(Carrier::kSharedMemory);
  const CUdeviceptr memory = f.allocate(kMi);
  f.makeStream(1);
  f.makeStream(2);
  f.makeEvent(1);
  f.marker();
  f.fake().hold(1);
  CHECK(f.fill(memory, 1, 100, ExecutorFixture::stream(1)));
  cmd::EventRecord record{};
  record.hEvent = ExecutorFixture::event(1);
  record.hStream = ExecutorFixture::stream(1);
  CHECK(f.post(record, 1));
  std::atomic<int> done{0};
  std::deque<std::thread> waiters;
  waiters.emplace_back([&] {
    CHECK_EQ(f.syncStream(ExecutorFixture::stream(1)), 0);
    ++done;
  });
  waiters.emplace_back([&] {
    cmd::EventSync sync{};
    sync.event = ExecutorFixture::event(1);
    CHECK_EQ(f.wait(sync), 0);
    ++done;
  });
  waiters.emplace_back([&] {
    CHECK_EQ(f.wait(cmd::ContextSync{}), 0);
    ++done;
  });
  for (int i = 0; i < 500; ++i) {
    CHECK(f.fill(memory, static_cast<uint8_t>(i), 1000, ExecutorFixture::stream(2)));
    CHECK_EQ(f.syncStream(ExecutorFixture::stream(2)), 0);
  }
  CHECK_EQ(done.load(), 0);
  f.fake().release(1);
  for (auto& waiter : waiters) waiter.join();
}

TEST("commands without a current context are safe") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    f.makeStream(1, 0);
    f.makeEvent(1, 0);
    CUdeviceptr memory = 0;
    if (f.allocate(kMi, memory, 0) != 0) memory = f.allocate(kMi);
    f.marker();
    f.fake().hold(1);
    CHECK(f.fill(memory, 9, 1000, ExecutorFixture::stream(1), 0));
    cmd::EventRecord record{};
    record.hEvent = ExecutorFixture::event(1);
    record.hStream = ExecutorFixture::stream(1);
    CHECK(f.post(record, 0));
    std::vector<std::byte> to(1000);
    std::deque<std::thread> threads;
    threads.emplace_back([&] { CHECK_EQ(f.syncStream(ExecutorFixture::stream(1), 0), 0); });
    threads.emplace_back([&] { CHECK_EQ(f.wait(cmd::ContextSync{}, 0), 0); });
    threads.emplace_back([&] {
      cmd::EventSync sync{};
      sync.event = ExecutorFixture::event(1);
      CHECK_EQ(f.wait(sync, 0), 0);
    });
    threads.emplace_back([&] { CHECK_EQ(f.download(to, memory, ExecutorFixture::stream(1), 0), 0); });
    waitUntil("the copy waits, too", [&] { return f.fake().waiting(1) >= 3; });
    f.fake().release(1);
    for (auto& thread : threads) thread.join();
    CHECK(to[999] == std::byte{9});
    CHECK(f.upload(memory, pattern(1, 300'000), 0, 0));
    CHECK(f.free(memory, 0));
    f.marker();
  }
}

TEST("a stream may be used while another device's context is current") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    f.makeStream(1, 2);
    const CUdeviceptr memory = f.allocate(2 * kMi, 2);
    const auto data = pattern(7, 2 * kMi);
    CHECK(f.upload(memory, data, ExecutorFixture::stream(1), 1));
    std::vector<std::byte> back(data.size());
    CHECK_EQ(f.download(back, memory, ExecutorFixture::stream(1), 1), 0);
    CHECK(back == data);
    f.fake().hold(1);
    CHECK(f.fill(memory, 1, 100, ExecutorFixture::stream(1), 1));
    std::thread waiter([&] { CHECK_EQ(f.syncStream(ExecutorFixture::stream(1), 1), 0); });
    waitUntil("it waits", [&] { return f.fake().waiting(1) >= 2; });
    f.fake().release(1);
    waiter.join();
    CHECK_EQ(f.session().failure(), 0);
  }
}

TEST("the ring keeps what a copy to the device has not read yet") {
  ExecutorFixture f(Carrier::kSharedMemory);
  const CUdeviceptr memory = f.allocate(3 * kMi);
  const CUdeviceptr other = f.allocate(3 * kMi);
  f.makeStream(1);
  f.makeStream(2);
  f.marker();
  f.fake().hold(1);
  const auto data = pattern(5, 3 * kMi);
  CHECK(f.upload(memory, data, ExecutorFixture::stream(1)));
  std::atomic<bool> through{false};
  std::thread writer([&] {
    // Several times around the ring.
    for (uint64_t round = 0; round < 6; ++round)
      CHECK(f.upload(other, pattern(round, 3 * kMi), ExecutorFixture::stream(2)));
    through = true;
  });
  waitUntil("all its copies wait", [&] { return f.fake().waiting(1) >= 12; });
  f.fake().step(1, 5);
  CHECK(!through);
  f.fake().release(1);
  writer.join();
  std::vector<std::byte> back(data.size());
  CHECK_EQ(f.download(back, memory), 0);
  CHECK(back == data);
  CHECK_EQ(f.download(back, other), 0);
  CHECK(back == pattern(5, 3 * kMi));
}

TEST("a stream that is destroyed while copies and waits use it ends none of them") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    const auto data = pattern(2, 8 * kMi);
    const CUdeviceptr memory = f.allocate(8 * kMi);
    CHECK(f.upload(memory, data));
    f.makeStream(1);
    f.marker();
    f.fake().hold(1);
    CHECK(f.fill(memory, 3, kMi, ExecutorFixture::stream(1)));
    std::vector<std::byte> to(8 * kMi);
    std::thread waiter([&] { CHECK_EQ(f.syncStream(ExecutorFixture::stream(1)), 0); });
    waitUntil("one waits", [&] { return f.fake().waiting(1) >= 2; });
    std::thread reader([&] { CHECK_EQ(f.download(to, memory, ExecutorFixture::stream(1)), 0); });
    waitUntil("both wait", [&] { return f.fake().waiting(1) >= 4; });
    cmd::StreamDestroyV2 destroy{};
    destroy.hStream = ExecutorFixture::stream(1);
    CHECK(f.post(destroy, 1));
    f.marker();
    f.fake().release(1);
    reader.join();
    waiter.join();
    // In stream order: the copy contains values set before it.
    CHECK(to[kMi - 1] == std::byte{3});
    CHECK(std::equal(to.begin() + kMi, to.end(), data.begin() + kMi));
    CHECK_EQ(f.session().failure(), 0);
  }
}

TEST("an event that is destroyed while a thread waits for it lets that thread go") {
  ExecutorFixture f(Carrier::kSharedMemory);
  f.makeStream(1);
  f.makeEvent(1);
  f.marker();
  f.fake().hold(1);
  const CUdeviceptr memory = f.allocate(1000);
  CHECK(f.fill(memory, 1, 10, ExecutorFixture::stream(1)));
  cmd::EventRecord record{};
  record.hEvent = ExecutorFixture::event(1);
  record.hStream = ExecutorFixture::stream(1);
  CHECK(f.post(record, 1));
  std::thread waiter([&] {
    cmd::EventSync sync{};
    sync.event = ExecutorFixture::event(1);
    const int32_t result = f.wait(sync);
    // Regardless of whether the wait or the end came first.
    CHECK(result == 0 || result == CUDA_ERROR_INVALID_HANDLE);
  });
  f.marker();
  cmd::EventDestroyV2 destroy{};
  destroy.hEvent = ExecutorFixture::event(1);
  CHECK(f.post(destroy, 1));
  waiter.join();
  f.fake().release(1);
  CHECK_EQ(f.session().failure(), 0);
}

TEST("over TCP, an answer that says the device is done comes behind the bytes that land") {
  ExecutorFixture f(Carrier::kTcp);
  const CUdeviceptr memory = f.allocate(2 * kMi);
  const auto data = pattern(3, 2 * kMi);
  CHECK(f.upload(memory, data));
  f.makeStream(1);
  f.makeEvent(1);
  f.marker();
  std::vector<std::byte> to(2 * kMi);
  const size_t registered = f.fake().registeredRuns();
  f.session().onLanding(
      [&](uint64_t address, uint64_t) { return address - reinterpret_cast<uint64_t>(to.data()) < to.size(); });
  for (int round = 0; round < 100; ++round) {
    std::fill(to.begin(), to.end(), std::byte{0});
    // Regardless of whether the device is slower or faster than the next command.
    const bool slow = round % 4 == 0;
    if (slow) f.fake().hold(1);
    cmd::LandFromDevice copy{};
    copy.address = memory;
    copy.bytes = to.size();
    copy.stream = ExecutorFixture::stream(1);
    copy.hostAddress = reinterpret_cast<uint64_t>(to.data());
    CHECK(f.post(copy, 1));
    cmd::EventRecord record{};
    record.hEvent = ExecutorFixture::event(1);
    record.hStream = ExecutorFixture::stream(1);
    CHECK(f.post(record, 1));
    std::thread opener([&] {
      if (!slow) return;
      waitUntil("the copy waits", [&] { return f.fake().waiting(1) >= 3; });
      f.fake().release(1);
    });
    // The program polls, by event or by stream.
    int32_t result = 600;
    while (result == 600) {
      if (round % 2) {
        cmd::EventQuery query{};
        query.hEvent = ExecutorFixture::event(1);
        result = f.wait(query);
      } else {
        cmd::StreamQuery query{};
        query.hStream = ExecutorFixture::stream(1);
        result = f.wait(query);
      }
    }
    CHECK_EQ(result, 0);
    CHECK(to == data);
    opener.join();
  }
  // All use the same memory: some replies have arrived, and others may have to be resent.
  CHECK(f.fake().registeredRuns() <= registered + 4);
}

TEST("landings of few bytes, one after the other, use the same pinned memory again") {
  ExecutorFixture f(Carrier::kTcp);
  const CUdeviceptr memory = f.allocate(4096);
  f.makeStream(1);
  f.marker();
  const size_t registered = f.fake().registeredRuns();
  uint64_t over = 0;
  f.session().onLanded([&](uint64_t number) { over = number; });
  for (uint64_t number = 1; number <= 1000; ++number) {
    cmd::LandFromDevice copy{};
    copy.address = memory;
    copy.bytes = 4;
    copy.stream = ExecutorFixture::stream(1);
    copy.landing = number;
    copy.landed = over + 1;
    CHECK(f.post(copy, 1));
    CHECK_EQ(f.syncStream(ExecutorFixture::stream(1)), CUDA_SUCCESS);
    CHECK_EQ(over, number);
  }
  CHECK(f.fake().registeredRuns() <= registered + 2);
}

TEST("a wait for a landing is answered behind its bytes, also of one that came to nothing") {
  ExecutorFixture f(Carrier::kTcp);
  const CUdeviceptr memory = f.allocate(4096);
  const auto data = pattern(5, 4096);
  CHECK(f.upload(memory, data));
  f.makeStream(1);
  f.marker();
  std::vector<std::byte> to(4096);
  f.session().onLanding([&](uint64_t, uint64_t) { return true; });
  const auto land = [&](uint64_t number, uint64_t bytes) {
    cmd::LandFromDevice copy{};
    copy.address = memory;
    copy.bytes = bytes;
    copy.stream = ExecutorFixture::stream(1);
    copy.hostAddress = reinterpret_cast<uint64_t>(to.data());
    copy.landing = number;
    CHECK(f.post(copy, 1));
  };
  const auto await = [&](uint64_t number) {
    cmd::LandingAwait wait{};
    wait.landing = number;
    return f.wait(wait);
  };
  f.fake().hold(1);
  CHECK(f.fill(memory, 1, 1, ExecutorFixture::stream(1)));
  land(1, 4096);
  std::thread opener([&] {
    waitUntil("the copy waits", [&] { return f.fake().waiting(1) >= 3; });
    f.fake().release(1);
  });
  CHECK_EQ(await(1), CUDA_SUCCESS);
  CHECK(to[4095] == data[4095]);
  opener.join();
  land(2, ~uint64_t{0} / 2);
  CHECK_EQ(await(2), CUDA_SUCCESS);
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(await(77), CUDA_SUCCESS);
}

TEST("a failure that nobody waited for is latched once, with its command") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    CHECK(f.fill(64, 1, 10));
    CHECK(f.free(99));
    f.marker();
    CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_VALUE);
    CHECK(!f.failures().empty());
    CHECK(f.failures()[0] ==
          (std::pair<int32_t, uint16_t>{CUDA_ERROR_INVALID_VALUE, static_cast<uint16_t>(cmd::Op::kMemsetD8Async)}));
    // The failure of a command with a waiting thread is its reply, and is not latched.
    CUdeviceptr address = 0;
    CHECK_EQ(f.allocate(~uint64_t{0}, address), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(f.session().failure(), 0);
  }
}

TEST("when the context is lost, everything answers so and the session can still end") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    f.makeStream(1);
    const CUdeviceptr memory = f.allocate(4 * kMi);
    CHECK(f.upload(memory, pattern(1, 4 * kMi)));
    f.marker();
    f.fake().hold(1);
    CHECK(f.fill(memory, 1, 10, ExecutorFixture::stream(1)));
    std::thread syncer([&] { CHECK_EQ(f.syncStream(ExecutorFixture::stream(1)), CUDA_ERROR_ILLEGAL_ADDRESS); });
    waitUntil("one waits", [&] { return f.fake().waiting(1) >= 2; });
    std::thread reader([&] {
      std::vector<std::byte> to(4 * kMi);
      CHECK_EQ(f.download(to, memory, ExecutorFixture::stream(1)), CUDA_ERROR_ILLEGAL_ADDRESS);
    });
    waitUntil("both wait", [&] { return f.fake().waiting(1) >= 4; });
    f.fake().fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    syncer.join();
    reader.join();
    CHECK(f.upload(memory, pattern(1, kMi)));
    CHECK(f.free(memory));
    uint64_t available = 0, total = 0;
    f.memoryInfo(available, total);
    std::vector<std::byte> to(1000);
    CHECK_EQ(f.download(to, memory), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQ(f.session().failure(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(!f.session().lost());
    CHECK(f.finish().ok);
  }
}

TEST("an end from outside tells the client its reason, whatever is under way") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    f.makeStream(1);
    const CUdeviceptr memory = f.allocate(8 * kMi);
    f.marker();
    f.fake().hold(1);
    CHECK(f.upload(memory, pattern(1, kMi), ExecutorFixture::stream(1)));
    CHECK(f.free(memory));
    // The upload's four pieces and their marks, and the mark behind which the memory is free.
    std::deque<std::thread> threads;
    threads.emplace_back([&] {
      uint64_t available = 0, total = 0;
      CHECK_EQ(f.memoryInfo(available, total), kSessionLost);
    });
    waitUntil("one is under way", [&] { return f.fake().waiting(1) >= 9; });
    threads.emplace_back([&] { CHECK_EQ(f.syncStream(ExecutorFixture::stream(1)), kSessionLost); });
    waitUntil("two are under way", [&] { return f.fake().waiting(1) >= 10; });
    threads.emplace_back([&] {
      std::vector<std::byte> to(8 * kMi);
      CHECK_EQ(f.download(to, memory, ExecutorFixture::stream(1)), kSessionLost);
    });
    waitUntil("all are under way", [&] { return f.fake().waiting(1) >= 12; });
    f.stop("the claim was released");
    f.stop("the client is gone");
    for (auto& thread : threads) thread.join();
    const Executor::End end = f.ended();
    CHECK_EQ(end.reason, "the claim was released");
    CHECK(end.ok);
    CHECK_EQ(f.lostReason(), "the claim was released");
  }
}

std::atomic<int> freedUnderCheck{0};
std::atomic<bool> mayFree{false};

TEST("what a checked program freed last is freed, however soon it ends after") {
  static constexpr int kPieces = 300;
  SanitizerTable checks;
  checks.bytes = sizeof(checks);
  checks.manage = [](uint64_t, uint64_t) {};
  checks.allocated = [](uint64_t, uint64_t, const char*) {};
  checks.left = [](uint64_t) {};
  checks.ended = [] {};
  checks.freed = [](uint64_t, const char*) {
    ++freedUnderCheck;
    while (!mayFree.load()) std::this_thread::yield();
  };
  for (const Carrier carrier : kCarriers) {
    freedUnderCheck = 0;
    mayFree = false;
    ExecutorFixture f(carrier, 1, "", &checks);
    std::vector<CUdeviceptr> pieces;
    for (int i = 0; i < kPieces; ++i) pieces.push_back(f.allocate(4096));
    for (const CUdeviceptr piece : pieces) CHECK(f.free(piece));
    // A client sends everything before its process ends.
    f.session().flush();
    waitUntil("the worker is busy with the first", [] { return freedUnderCheck.load() == 1; });
    f.clientGone();
    mayFree = true;
    CHECK(f.ended().ok);
    CHECK_EQ(freedUnderCheck.load(), kPieces);
  }
}

}  // namespace
}  // namespace millpond::worker
