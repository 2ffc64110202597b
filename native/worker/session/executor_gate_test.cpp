// SPDX-License-Identifier: Apache-2.0
// Commands that wait at a gate, and progress meanwhile.
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "protocol/futex.h"
#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

constexpr Carrier kCarriers[] = {Carrier::kSharedMemory, Carrier::kTcp};
constexpr Share kAll{ServiceClass::kGuaranteed, 100};

struct Gates {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-gates-XXXXXX").string();
  Gates() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~Gates() { std::filesystem::remove_all(path); }

  std::unique_ptr<gate::GateFile> open(unsigned device) const {
    auto file = gate::GateFile::open(path + "/" + FakeDriver::uuid(device));
    CHECK(bool(file));
    return std::move(*file);
  }
  /// The only session has a debt for which it is blocked for a minute.
  void putIntoDebt(unsigned device) const {
    const auto file = open(device);
    gate::GateFile::Locked locked(*file);
    CHECK_EQ(locked.turns.table().taken, 1u);
    locked.turns.pass(0, monotonicNs());
    locked.turns.charge(0, int64_t{60} * 1'000'000'000, monotonicNs());
  }
};

/// The order that a reply guarantees goes through memory that is mapped twice, which the thread sanitizer does not
/// recognize.
__attribute__((no_sanitize("thread"))) uint8_t byteAt(CUdeviceptr address) {
  return *reinterpret_cast<volatile uint8_t*>(address);
}

}  // namespace

TEST(
    "work waits for its turn with all that comes behind it; what was issued before is answered, and a resize lets it go") {
  for (const Carrier carrier : kCarriers) {
    const Gates gates;
    ExecutorFixture f(carrier, 2, gates.path);
    const CUdeviceptr memory = f.allocate(4096);
    f.makeStream(1);
    f.makeStream(2);
    CHECK(f.fill(memory, 1, 4096, f.stream(1)));
    CHECK_EQ(f.syncStream(f.stream(1)), 0);
    CHECK_EQ(byteAt(memory), 1);

    f.fake().hold(1);
    CHECK(f.fill(memory, 2, 4096, f.stream(1)));
    f.marker();
    const uint64_t before = f.commands();
    std::atomic<int32_t> answered{-1};
    std::thread waiter([&] { answered.store(f.syncStream(f.stream(1))); });
    while (f.commands() == before) std::this_thread::yield();

    gates.putIntoDebt(0);
    CHECK(f.fill(memory + 2048, 3, 2048, f.stream(2)));
    std::atomic<bool> passed{false};
    std::thread behind([&] {
      f.marker();
      passed.store(true);
    });
    f.fake().release(1);
    waiter.join();
    CHECK_EQ(answered.load(), 0);
    CHECK_EQ(byteAt(memory), 2);
    CHECK_EQ(byteAt(memory + 2048), 2);
    CHECK(!passed.load());

    f.setShares({kAll, kAll});
    behind.join();
    CHECK_EQ(f.syncStream(f.stream(2)), 0);
    CHECK_EQ(byteAt(memory + 2048), 3);
    CHECK(f.failures().empty());
  }
}

TEST("work that waits for its turn holds up no function of the program") {
  for (const Carrier carrier : kCarriers) {
    const Gates gates;
    ExecutorFixture f(carrier, 2, gates.path);
    const CUdeviceptr memory = f.allocate(4096);
    const CUdeviceptr mirrored = f.allocate(4096);
    f.makeStream(1);
    f.makeStream(2);
    cmd::HostFunction function{};
    function.stream = f.stream(1);
    CHECK(f.post(function, 1));
    f.marker();

    gates.putIntoDebt(0);
    CHECK(f.fill(memory, 1, 4096));
    // As a thread does that runs the program's functions; there are two.
    constexpr Session::Caller kCallbacks{1, 77};
    for (unsigned round = 1; round <= 2; ++round) {
      cmd::CallbackNextReply next{};
      Session::Answer answer;
      answer.body = std::as_writable_bytes(std::span(&next, 1)).first(cmd::CallbackNextReply::kFixedBytes);
      const cmd::CallbackNext ask{};
      const auto fill = [&](std::byte* place) { cmd::encode(place, ask); };
      CHECK_EQ(f.session().wait(static_cast<uint16_t>(cmd::CallbackNext::kOp), kCallbacks,
                                cmd::encodedSize<cmd::CallbackNext>(), fill, answer),
               0);
      // Its bytes of mirrored memory come first, and behind those that another thread of the program wrote there.
      const uint64_t older = 99;
      CHECK(f.upload(mirrored, std::as_bytes(std::span(&older, 1)), f.stream(2)));
      cmd::CopyToDevice push{};
      push.address = mirrored;
      push.stream = f.stream(2);
      push.total = sizeof(uint64_t);
      push.dataBytes = sizeof(uint64_t);
      const uint64_t written = round;
      CHECK(f.session().postWithData(
          static_cast<uint16_t>(cmd::CopyToDevice::kOp), kCallbacks, sizeof push,
          [&](std::byte* place) { std::memcpy(place, &push, sizeof push); }, std::as_bytes(std::span(&written, 1))));
      cmd::StreamSync pushed{};
      pushed.stream = f.stream(2);
      Session::Answer none;
      CHECK_EQ(f.session().wait(
                   static_cast<uint16_t>(cmd::StreamSync::kOp), kCallbacks, cmd::encodedSize<cmd::StreamSync>(),
                   [&](std::byte* place) { cmd::encode(place, pushed); }, none),
               0);
      cmd::CallbackDone done{};
      done.number = next.number;
      CHECK(f.session().post(static_cast<uint16_t>(cmd::CallbackDone::kOp), kCallbacks,
                             cmd::encodedSize<cmd::CallbackDone>(),
                             [&](std::byte* place) { cmd::encode(place, done); }));
      f.session().flush();
      waitUntil("the function has returned", [&] { return f.fake().returnedHostFunctions() == round; });
      if (round == 2) break;
      // The second comes while the first work is held: it was issued before.
      f.setShares({kAll, kAll});
      CHECK(f.post(function, 1));
      f.marker();
      gates.putIntoDebt(0);
      CHECK(f.fill(memory, 2, 4096));
    }
    f.setShares({kAll, kAll});
    CHECK_EQ(f.syncStream(0), 0);
    CHECK_EQ(byteAt(memory), 2);
    CHECK_EQ(byteAt(mirrored), 2);
    CHECK(f.failures().empty());
  }
}

TEST("a session that ends while its work waits is over at once, and leaves its seat") {
  const Gates gates;
  {
    ExecutorFixture f(Carrier::kSharedMemory, 2, gates.path);
    const CUdeviceptr memory = f.allocate(4096);
    gates.putIntoDebt(0);
    CHECK(f.fill(memory, 1, 4096));
    CHECK(f.finish().ok);
  }
  CHECK_EQ(gates.open(0)->taken(), 0u);
  CHECK_EQ(gates.open(1)->taken(), 0u);
}

TEST("a session whose gate cannot be opened does not begin") {
  ExecutorFixture f(Carrier::kSharedMemory, 2, "/nowhere");
  const Executor::End end = f.ended();
  CHECK(!end.ok);
  CHECK(end.reason.find("the gate's lock /nowhere/") != std::string::npos);
}

}  // namespace millpond::worker
