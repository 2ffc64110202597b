// SPDX-License-Identifier: Apache-2.0
// Commands that wait at a gate, and progress meanwhile.
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/address_places.h"
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

  std::unique_ptr<gate::GateFile> open(unsigned device, gate::Lane lane = gate::Lane::kCompute) const {
    auto file = gate::GateFile::open(path + "/" + FakeDriver::uuid(device) + gate::suffixOf(lane));
    CHECK(bool(file));
    return std::move(*file);
  }
  /// The only session has a debt that blocks it for a minute.
  void putIntoDebt(unsigned device) const {
    const auto file = open(device);
    gate::GateFile::Locked locked(*file);
    CHECK_EQ(locked.slicer.table().taken, 1u);
    locked.slicer.pass(0, monotonicNs());
    locked.slicer.charge(0, int64_t{60} * 1'000'000'000, monotonicNs());
  }
};

/// Another claim that always has work in a lane of a device, while the session there has used more than its share.
class Rival {
 public:
  Rival(const Gates& gates, gate::Lane lane) : file_(gates.open(0, lane)) {
    const auto slot = file_->join(77, {ServiceClass::kBurstable, 50}, monotonicNs());
    CHECK(bool(slot));
    thread_ = std::thread([this, slot = *slot] {
      while (!isOver_.load()) {
        {
          gate::GateFile::Locked locked(*file_);
          locked.slicer.charge(0, 100'000'000, monotonicNs());
          if (locked.slicer.table().slots[0].state == gate::Slot::State::kWaiting) hasSeenWaiting_.store(true);
          if (locked.slicer.ask(slot, monotonicNs()).isMine) hadTurn_.store(true);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      file_->leave(slot, monotonicNs());
    });
    waitUntil("the other claim has the turn", [&] { return hadTurn_.load(); });
  }
  ~Rival() {
    isOver_.store(true);
    thread_.join();
  }
  /// Continues until the session has waited for its turn. The machine may let the rival sleep until its own turn is
  /// over.
  void untilWaiting(const std::function<void()>& issue) {
    for (int i = 0; i < 600; ++i) {
      issue();
      // The rival checks: a thread that polls without pause would keep both from the lock of the table.
      for (int look = 0; look < 100; ++look) {
        if (hasSeenWaiting_.load()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    testing::fail(__FILE__, __LINE__, "copies do not wait for their turn");
  }

 private:
  std::unique_ptr<gate::GateFile> file_;
  std::atomic<bool> isOver_{false};
  std::atomic<bool> hadTurn_{false};
  std::atomic<bool> hasSeenWaiting_{false};
  std::thread thread_;
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

    // Copies are charged as soon as the session has seen another claim in their lane.
    const auto up = gates.open(0, gate::Lane::kToDevice);
    const auto used = [&] { return gate::GateFile::Locked(*up).slicer.table().slots[0].usedNs; };
    const auto slot = up->join(77, {ServiceClass::kBurstable, 50}, monotonicNs());
    CHECK(bool(slot));
    const std::vector<std::byte> some(64);
    waitUntil("copies are charged", [&] {
      CHECK(f.upload(memory, some));
      f.marker();
      return used() > 0;
    });
    gates.putIntoDebt(0);
    CHECK(f.fill(memory, 1, 4096));
    // Like a thread that runs the program's functions; there are two.
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
      // Its bytes of mirrored memory come first, before the bytes that another thread of the program wrote there.
      const auto usedBefore = used();
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
      CHECK(used() > usedBefore);
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
    up->leave(*slot, monotonicNs());
    CHECK(f.failures().empty());
  }
}

TEST("copies wait for a turn in their direction, while another claim copies and theirs has had its share") {
  for (const Carrier carrier : kCarriers) {
    const Gates gates;
    ExecutorFixture f(carrier, 1, gates.path);
    constexpr size_t kBytes = size_t{1} << 20;
    const CUdeviceptr memory = f.allocate(kBytes);
    const std::vector<std::byte> data = pattern(1, kBytes);
    f.makeStream(1);
    f.marker();
    {
      Rival rival(gates, gate::Lane::kToDevice);
      rival.untilWaiting([&] { CHECK(f.upload(memory, data, f.stream(1))); });
    }
    CHECK_EQ(f.syncStream(f.stream(1)), 0);
    std::vector<std::byte> back(kBytes);
    {
      std::optional<Rival> rival(std::in_place, gates, gate::Lane::kFromDevice);
      std::atomic<bool> isOver{false};
      std::thread reader([&] {
        while (!isOver.load()) CHECK_EQ(f.download(back, memory, f.stream(1)), 0);
      });
      rival->untilWaiting([] {});
      // It blocks no other thread of the program, no computation, and no copy in the other direction.
      CHECK(f.fill(memory, 9, 1, f.stream(1)));
      CHECK(f.upload(memory, data, f.stream(1)));
      f.marker();
      isOver.store(true);
      // With the other claim present, each piece of the last copy would have to wait until a second of debt is paid.
      rival.reset();
      reader.join();
    }
    CHECK_EQ(f.download(back, memory, f.stream(1)), 0);
    CHECK(back == data);
    CHECK(f.failures().empty());
  }
}

TEST("small copies wait for nobody's turn while their claim is within its share, and wait afterwards") {
  for (const Carrier carrier : kCarriers) {
    const Gates gates;
    ExecutorFixture f(carrier, 1, gates.path);
    const CUdeviceptr memory = f.allocate(4096);
    const std::vector<std::byte> data = pattern(3, 4096);
    std::vector<std::byte> back(data.size());
    const auto up = gates.open(0, gate::Lane::kToDevice), down = gates.open(0, gate::Lane::kFromDevice);
    const auto used = [](gate::GateFile& file) { return gate::GateFile::Locked(file).slicer.table().slots[0].usedNs; };
    const auto slotUp = up->join(77, {ServiceClass::kBurstable, 50}, monotonicNs());
    const auto slotDown = down->join(77, {ServiceClass::kBurstable, 50}, monotonicNs());
    CHECK(bool(slotUp) && bool(slotDown));
    // The session notices the other claim at its next check of the table.
    waitUntil("copies are charged", [&] {
      CHECK(f.upload(memory, data));
      CHECK_EQ(f.download(back, memory), 0);
      return used(*up) > 0 && used(*down) > 0;
    });
    CHECK(back == data);
    // They took no turn.
    for (const auto& file : {up.get(), down.get()}) {
      CHECK_EQ(gate::GateFile::Locked(*file).slicer.table().slots[0].from, 0);
      CHECK_EQ(gate::GateFile::Locked(*file).slicer.table().slots[0].flown, 0);
    }
    {
      Rival rival(gates, gate::Lane::kToDevice);
      rival.untilWaiting([&] { CHECK(f.upload(memory, data)); });
    }
    CHECK_EQ(f.syncStream(0), 0);
    up->leave(*slotUp, monotonicNs());
    down->leave(*slotDown, monotonicNs());
    CHECK(f.failures().empty());
  }
}

TEST("boxes between host and device wait in the lane of their direction") {
  const Gates gates;
  ExecutorFixture f(Carrier::kSharedMemory, 1, gates.path);
  constexpr size_t kBytes = size_t{1} << 20;
  const CUdeviceptr memory = f.allocate(kBytes);
  cmd::HostAlloc pin{};
  pin.bytes = kBytes;
  pin.address = kPinnedPlaces.first;
  pin.isPrivate = 1;
  CHECK_EQ(f.wait(pin), 0);
  cmd::CopyBox box{};
  box.dstAddress = memory;
  box.srcAddress = pin.address;
  box.dstPitch = box.srcPitch = box.width = 1024;
  box.dstRows = box.srcRows = box.height = 1024;
  box.depth = 1;
  for (const auto lane : {gate::Lane::kToDevice, gate::Lane::kFromDevice}) {
    Rival rival(gates, lane);
    rival.untilWaiting([&] { CHECK(f.post(box, 1)); });
    std::swap(box.dstAddress, box.srcAddress);
  }
  CHECK_EQ(f.syncStream(0), 0);
}

TEST("a session that ends while its work waits is over at once, and leaves its slot") {
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
