// SPDX-License-Identifier: Apache-2.0
// Clients that send anything: the session ends with a reason, or goes on, and nothing else ever happens.
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <random>

#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

/// A session with one of everything in it.
class Victim {
 public:
  explicit Victim(Carrier carrier) : fixture_(carrier), room_(size_t{1} << 20) {
    fixture_.makeStream(1);
    fixture_.makeStream(2, 2);
    fixture_.makeEvent(1);
    memory_ = fixture_.allocate(100'000);
    cmd::ImagePart part{};
    part.handle = module(1);
    part.total = 4;
    const std::string text = "text";
    CHECK(fixture_.post(part, 1, std::as_bytes(std::span(text))));
    cmd::ModuleLoad load{};
    load.handle = module(1);
    CHECK_EQ(fixture_.wait(load, 1, std::span<const std::byte>{}, std::span<const std::byte>{}), 0);
    cmd::GetFunction get{};
    get.owner = module(1);
    get.handle = function(1);
    const std::string name = "f8";
    CHECK_EQ(fixture_.wait(get, 1, std::as_bytes(std::span(name))), 0);
  }
  uint64_t memory() const { return memory_; }
  bool alive() { return !fixture_.session().lost(); }

  /// Sends a command as it is. False when the session is lost.
  bool send(uint16_t op, uint16_t context, std::span<const std::byte> body, bool waits) {
    Session& session = fixture_.session();
    const auto fill = [&](std::byte* place) {
      if (!body.empty()) std::memcpy(place, body.data(), body.size());
    };
    if (!waits) return session.post(op, {context, 1}, body.size(), fill);
    std::array<std::byte, 64> small;
    std::vector<std::byte> whole;
    Session::Answer answer;
    answer.body = small;
    answer.whole = &whole;
    answer.data = room_;
    session.wait(op, {context, 1}, body.size(), fill, answer);
    return alive();
  }
  /// Whether the session still answers; it must have ended properly if not.
  bool check() {
    Session::Answer answer;
    const int32_t result = fixture_.wait(cmd::Marker{}, 1, answer);
    fixture_.session().takeFailure();
    if (result == 0 || alive()) return true;
    return false;
  }
  Executor::End ended() { return fixture_.ended(); }
  const std::string& lostReason() const { return fixture_.lostReason(); }

 private:
  ExecutorFixture fixture_;
  std::vector<std::byte> room_;
  CUdeviceptr memory_ = 0;
};

#ifdef __SANITIZE_THREAD__
constexpr bool kForThreads = true;
#else
constexpr bool kForThreads = false;
#endif

/// Goes on with new victims when one is lost, and checks how it was lost.
class Attack {
 public:
  explicit Attack(Carrier carrier) : carrier_(carrier) { renew(); }
  Victim& victim() { return *victim_; }
  void send(uint16_t op, uint16_t context, std::span<const std::byte> body, bool waits) {
    ++sent_;
    // Answered when there is a callback to run, which nobody has asked for here.
    if (op == static_cast<uint16_t>(cmd::Op::kCallbackNext)) waits = false;
    if (victim_->send(op, context, body, waits) && victim_->check()) return;
    ++lost_;
    const std::string told = victim_->lostReason();
    const Executor::End end = victim_->ended();
    // Either the worker ended it and said why, or the client was given more than it had asked for and left.
    if (!end.ok) {
      CHECK(end.reason.starts_with("protocol violation in command "));
      CHECK_EQ(told, end.reason);
    } else {
      CHECK_EQ(told, "the connection to the worker broke");
    }
    renew();
  }
  uint64_t sent() const { return sent_; }
  uint64_t lost() const { return lost_; }

 private:
  void renew() {
    victim_.reset();
    victim_ = std::make_unique<Victim>(carrier_);
  }
  Carrier carrier_;
  std::unique_ptr<Victim> victim_;
  uint64_t sent_ = 0;
  uint64_t lost_ = 0;
};

TEST("commands that do not exist end the session") {
  for (const Carrier carrier : kCarriers)
    for (const uint16_t op : {uint16_t{0}, cmd::kOpLimit, uint16_t{1000}, uint16_t{0xffff}}) {
      Victim victim(carrier);
      CHECK(!victim.send(op, 1, {}, true));
      const Executor::End end = victim.ended();
      CHECK(!end.ok);
      CHECK(end.reason.ends_with("there is no command " + std::to_string(op)));
    }
}

TEST("contexts that the session does not have end it") {
  for (const Carrier carrier : kCarriers)
    for (const uint16_t context : {uint16_t{3}, uint16_t{64}, uint16_t{0xffff}}) {
      Victim victim(carrier);
      CHECK(!victim.send(static_cast<uint16_t>(cmd::Op::kMarker), context, {}, true));
      CHECK(victim.ended().reason.ends_with("the session has no context " + std::to_string(context)));
    }
}

TEST("every command, cut and lengthened, with every kind of content, harms nobody but its session") {
  for (const Carrier carrier : kCarriers) {
    Attack attack(carrier);
    std::minstd_rand random(77);
    for (uint16_t op = 1; op < cmd::kOpLimit; ++op) {
      for (size_t bytes = 0; bytes <= 96; bytes += 8) {
        // Over TCP the same code runs, and the thread sanitizer is not after the content: a sample is enough.
        if ((carrier == Carrier::kTcp || kForThreads) && (op + bytes / 8) % (kForThreads ? 12 : 4)) continue;
        const std::vector<std::byte> zeros(bytes);
        attack.send(op, 1, zeros, bytes % 16 == 0);
        const std::vector<std::byte> ones(bytes, std::byte{0xff});
        attack.send(op, static_cast<uint16_t>(random() % 3), ones, true);
      }
    }
    CHECK(attack.lost() > 50);
    CHECK(attack.lost() < attack.sent());
  }
}

TEST("random commands of likely content harm nobody but their session") {
  constexpr int kCommands = kForThreads ? 300 : 2500;
  for (const Carrier carrier : kCarriers) {
    Attack attack(carrier);
    std::minstd_rand random(carrier == Carrier::kTcp ? 5 : 6);
    for (int i = 0; i < kCommands; ++i) {
      const auto word = [&]() -> uint64_t {
        const uint64_t memory = attack.victim().memory();
        switch (random() % 22) {
          case 0:
          case 1:
            return 0;
          case 2:
            return 1;
          case 3:
            return ~uint64_t{0};
          case 4:
          case 5:
            return ExecutorFixture::stream(1);
          case 6:
            return ExecutorFixture::stream(2);
          case 7:
          case 8:
            return ExecutorFixture::event(1);
          case 9:
            return module(1);
          case 10:
          case 11:
            return function(1);
          case 12:
          case 13:
            return memory;
          case 14:
            return memory + random() % 200'000;
          case 15:
            return 4096 * (random() % 3);
          case 16:
            return random() % 1000;
          case 17:
            return (uint64_t{random()} << 32) % (uint64_t{1} << 47) & ~uint64_t{4095};
          case 18:
            return reinterpret_cast<uint64_t>(&attack);
          case 19:
            return uint64_t{1} << (random() % 64);
          case 20:
            return handle::make(static_cast<HandleKind>(random() % kHandleKinds), static_cast<uint32_t>(random() % 4000),
                                static_cast<uint16_t>(random() % 3));
          default:
            return uint64_t{random()} << 32 | random();
        }
      };
      std::vector<uint64_t> words(random() % 16);
      for (uint64_t& each : words) each = word();
      const auto op = static_cast<uint16_t>(1 + random() % (cmd::kOpLimit - 1));
      // Two numbers of 32 bits in one word are likely, too: lengths of tails among them.
      for (uint64_t& each : words)
        if (random() % 4 == 0) each = (random() % 4 ? random() % 64 : random()) << 32 | (random() % 64);
      attack.send(op, static_cast<uint16_t>(random() % 3), std::as_bytes(std::span(words)), random() % 2 == 0);
    }
    CHECK(attack.lost() > 50);
    CHECK(attack.lost() < attack.sent());
  }
}

TEST("what waits for a stream is bounded") {
  ExecutorFixture f(Carrier::kTcp);
  f.makeStream(1);
  const CUdeviceptr memory = f.allocate(1000);
  f.marker();
  f.fake().hold(1);
  CHECK(f.fill(memory, 1, 10, ExecutorFixture::stream(1)));
  cmd::CopyFromDevice copy{};
  copy.address = memory;
  copy.bytes = 10;
  copy.stream = ExecutorFixture::stream(1);
  for (int i = 0; i < 70'000; ++i) CHECK(f.post(copy, 1));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_OUT_OF_MEMORY);
  // More waits than a program has threads are no program's.
  cmd::StreamSync sync{};
  sync.stream = ExecutorFixture::stream(1);
  for (int i = 0; i < 9000 && f.post(sync, 1); ++i) {
  }
  f.wait(cmd::Marker{});
  CHECK(f.ended().reason.ends_with("over 8192 commands wait at once"));
  f.fake().release(1);
}

TEST("rules of copies and pinned memory that are broken are named") {
  const auto violation = [](Carrier carrier, const std::string& reason, auto&& act) {
    ExecutorFixture f(carrier);
    f.makeStream(1);
    act(f);
    f.wait(cmd::Marker{});
    const Executor::End end = f.ended();
    CHECK(!end.ok);
    if (!end.reason.ends_with(reason)) CHECK_EQ(end.reason, reason);
  };
  const auto piece = [](uint64_t offset, uint64_t total, size_t bytes) {
    return [=](ExecutorFixture& f) {
      cmd::CopyToDevice copy{};
      copy.address = f.allocate(1000);
      copy.offset = offset;
      copy.total = total;
      const std::vector<std::byte> data(bytes);
      f.post(copy, 1, std::span<const std::byte>(data));
    };
  };
  for (const Carrier carrier : kCarriers) {
    violation(carrier, "a piece of a copy lies outside of it", piece(1, 0, 0));
    violation(carrier, "a piece of a copy lies outside of it", piece(0, 7, 8));
    violation(carrier, "a piece of a copy lies outside of it", piece(~uint64_t{0}, 8, 8));
    violation(carrier, "a copy from memory that is not shared", [](ExecutorFixture& f) {
      cmd::CopyHostShared copy{};
      copy.hostAddress = reinterpret_cast<uint64_t>(&f);
      copy.bytes = 8;
      f.post(copy, 1);
    });
    violation(carrier, "no pinned memory begins there", [](ExecutorFixture& f) {
      cmd::HostFree end{};
      end.address = reinterpret_cast<uint64_t>(&f);
      f.wait(end);
    });
  }
  violation(Carrier::kTcp, "pinned memory cannot be shared over TCP", [](ExecutorFixture& f) {
    cmd::HostAlloc command{};
    command.bytes = 4096;
    command.address = 1 << 20;
    f.wait(command);
  });
  violation(Carrier::kSharedMemory, "only a remote client's memory is landed in", [](ExecutorFixture& f) {
    cmd::CopyFromDevice copy{};
    copy.address = f.allocate(100);
    copy.bytes = 8;
    f.post(copy, 1);
  });
  const auto pinned = [](uint64_t bytes, uint64_t address) {
    return [=](ExecutorFixture& f) {
      cmd::HostAlloc command{};
      command.bytes = bytes;
      command.address = address;
      f.wait(command);
    };
  };
  const std::string odd = " bytes at an odd place";
  violation(Carrier::kSharedMemory, odd, pinned(0, 1 << 20));
  violation(Carrier::kSharedMemory, odd, pinned(4097, 1 << 20));
  violation(Carrier::kSharedMemory, odd, pinned(4096, (1 << 20) + 8));
  violation(Carrier::kSharedMemory, odd, pinned(4096, 0));
  violation(Carrier::kSharedMemory, odd, pinned(~uint64_t{4095}, 1 << 20));
  for (const Carrier carrier : {Carrier::kSharedMemory, Carrier::kTcp})
    for (const uint64_t address : {uint64_t{0}, (uint64_t{1} << 20) + 8, ~uint64_t{4095}})
      violation(carrier, odd, [address](ExecutorFixture& f) {
        cmd::HostAlloc command{};
        command.bytes = 8192;
        command.address = address;
        command.isPrivate = 1;
        f.wait(command);
      });
  // A copy that reaches over the end of what is shared.
  violation(Carrier::kSharedMemory, "a copy reaches over the end of shared memory", [](ExecutorFixture& f) {
    void* place = ::mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED && ::munmap(place, 8192) == 0);
    cmd::HostAlloc command{};
    command.bytes = 8192;
    command.address = reinterpret_cast<uint64_t>(place);
    CHECK_EQ(f.wait(command), 0);
    cmd::CopyHostShared copy{};
    copy.deviceAddress = f.allocate(8192);
    copy.hostAddress = command.address + 4096;
    copy.bytes = 4097;
    copy.direction = 1;
    f.post(copy, 1);
  });
}

}  // namespace
}  // namespace millpond::worker
