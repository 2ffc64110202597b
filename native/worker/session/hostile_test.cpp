// SPDX-License-Identifier: Apache-2.0
// Clients that send random data: the session ends with a reason or continues, and nothing else happens.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>

#include "testing/check.h"
#include "worker/testing/victim.h"

namespace millpond::worker {
namespace {

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
        // Over TCP the same code runs, and the thread sanitizer does not check contents: a sample is sufficient.
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
          case 1: return 0;
          case 2: return 1;
          case 3: return ~uint64_t{0};
          case 4:
          case 5: return ExecutorFixture::stream(1);
          case 6: return ExecutorFixture::stream(2);
          case 7:
          case 8: return ExecutorFixture::event(1);
          case 9: return module(1);
          case 10:
          case 11: return function(1);
          case 12:
          case 13: return memory;
          case 14: return memory + random() % 200'000;
          case 15: return 4096 * (random() % 3);
          case 16: return random() % 1000;
          case 17: return (uint64_t{random()} << 32) % (uint64_t{1} << 47) & ~uint64_t{4095};
          case 18: return reinterpret_cast<uint64_t>(&attack);
          case 19: return uint64_t{1} << (random() % 64);
          case 20:
            return handle::make(static_cast<HandleKind>(random() % kHandleKinds),
                                static_cast<uint32_t>(random() % 4000), static_cast<uint16_t>(random() % 3));
          default: return uint64_t{random()} << 32 | random();
        }
      };
      std::vector<uint64_t> words(random() % 16);
      for (uint64_t& each : words) each = word();
      const auto op = static_cast<uint16_t>(1 + random() % (cmd::kOpLimit - 1));
      // Two 32-bit numbers in one word are likely, too, such as lengths of tails.
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
  cmd::LandFromDevice copy{};
  copy.address = memory;
  copy.bytes = 10;
  copy.stream = ExecutorFixture::stream(1);
  for (int i = 0; i < 70'000; ++i) CHECK(f.post(copy, 1));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_OUT_OF_MEMORY);
  f.fake().release(1);
}

TEST("what does not fit does not without a context, too") {
  ExecutorFixture f(Carrier::kSharedMemory);
  cmd::VmCreate command{};
  command.memory = 1;
  command.bytes = 2 * ExecutorFixture::kLimit;
  CHECK_EQ(f.wait(command, 0), CUDA_ERROR_OUT_OF_MEMORY);
  f.marker();
  CHECK(f.finish().ok);
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
  const auto land = [](ExecutorFixture& f, uint64_t number, uint64_t hostAddress) {
    cmd::LandFromDevice copy{};
    copy.address = f.allocate(100);
    copy.bytes = 8;
    copy.stream = ExecutorFixture::stream(1);
    copy.hostAddress = hostAddress;
    copy.landing = number;
    f.post(copy, 1);
  };
  violation(Carrier::kTcp, "two landings of one number", [&](ExecutorFixture& f) {
    land(f, 7, 4096);
    land(f, 7, 4096);
  });
  violation(Carrier::kTcp, "a copy reaches over the end of all addresses",
            [&](ExecutorFixture& f) { land(f, 7, ~uint64_t{0} - 3); });
  for (const uint64_t hostAddress : {uint64_t{4095}, uint64_t{4097}, uint64_t{0}, ~uint64_t{0}})
    violation(Carrier::kTcp, "a copy that is not part of a landing", [&](ExecutorFixture& f) {
      land(f, 7, 4096);
      cmd::CopyFromLanding copy{};
      copy.address = f.allocate(100);
      copy.bytes = 8;
      copy.hostAddress = hostAddress;
      copy.landing = 7;
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
  const auto kept = [](ExecutorFixture& f, uint64_t bytes = 8192, uint64_t address = uint64_t{1} << 30) {
    cmd::HostKeep keep{};
    keep.bytes = bytes;
    keep.address = address;
    f.post(keep, 1);
  };
  for (const Carrier carrier : kCarriers) violation(carrier, "unknown shared memory", kept);
  violation(Carrier::kSharedMemory, "unknown shared memory", [&](ExecutorFixture& f) {
    cmd::HostAlloc own{};
    own.bytes = 8192;
    own.address = uint64_t{1} << 30;
    own.isPrivate = 1;
    CHECK_EQ(f.wait(own), 0);
    kept(f);
  });
  for (const Carrier carrier : kCarriers) {
    // Each session in this process leaves its memory mapped.
    static uint64_t there = uint64_t{1} << 31;
    const auto mirrored = [](ExecutorFixture& f, int64_t offset, uint64_t bytes, uint32_t state) {
      cmd::HostAlloc own{};
      own.bytes = 8192;
      own.address = there += uint64_t{1} << 20;
      own.isPrivate = 1;
      CHECK_EQ(f.wait(own), 0);
      cmd::HostMirror mirror{};
      mirror.address = there + static_cast<uint64_t>(offset);
      mirror.bytes = bytes;
      mirror.state = state;
      f.wait(mirror);
    };
    const std::string none = "only memory that the worker has mapped can be mirrored";
    violation(carrier, none, [&](ExecutorFixture& f) { mirrored(f, 0, 8193, 1); });
    violation(carrier, none, [&](ExecutorFixture& f) { mirrored(f, -1, 8, 1); });
    violation(carrier, none, [&](ExecutorFixture& f) { mirrored(f, 0, 0, 1); });
    violation(carrier, none, [&](ExecutorFixture& f) { mirrored(f, 8, ~uint64_t{7}, 1); });
    violation(carrier, "of unknown state", [&](ExecutorFixture& f) { mirrored(f, 0, 8, 3); });
    violation(carrier, "contents of memory that is not mirrored", [&](ExecutorFixture& f) {
      mirrored(f, 0, 8192, 1);
      cmd::HostContents contents{};
      contents.address = there + 8192 - 8;
      const std::vector<std::byte> data(16);
      f.post(contents, 1, std::span<const std::byte>(data));
    });
  }
  const auto resumed = [&](const std::string& reason, auto&& act) {
    ExecutorFixture f(Carrier::kSharedMemory, 2, "", nullptr, nullptr, {int64_t{3600} * 1'000'000'000, true});
    act(f);
    f.wait(cmd::Marker{});
    CHECK(f.ended().reason.ends_with(reason));
  };
  const auto file = [](size_t bytes, bool isSealed) {
    UniqueFd made(::memfd_create("pinned", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    CHECK_EQ(::ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
    if (isSealed) CHECK_EQ(::fcntl(made.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return made;
  };
  resumed("pinned memory without a file", [&](ExecutorFixture& f) { kept(f); });
  for (const bool isShort : {true, false})
    resumed("pinned memory without a file", [&](ExecutorFixture& f) {
      CHECK(bool(f.session().sendFile(file(isShort ? 4096 : 8192, isShort).get())));
      kept(f);
    });
  resumed(odd, [&](ExecutorFixture& f) { kept(f, 4097); });
  resumed(odd, [&](ExecutorFixture& f) { kept(f, 8192, 8); });
  resumed("unknown shared memory", [&](ExecutorFixture& f) {
    CHECK_EQ(f.wait(cmd::SessionRestored{}), 0);
    CHECK(bool(f.session().sendFile(file(8192, true).get())));
    kept(f);
  });
  // A copy that extends beyond the end of shared memory.
  violation(Carrier::kSharedMemory, "a copy reaches over the end of shared memory", [](ExecutorFixture& f) {
    void* place = ::mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED && ::munmap(place, 8192) == 0);
    cmd::HostAlloc command{};
    command.bytes = 8192;
    command.address = reinterpret_cast<uint64_t>(place);
    CHECK_EQ(f.wait(command), 0);
    cmd::CopyHostShared copy{};
    copy.deviceAddress = f.allocate(8192);
    copy.hostAddress = reinterpret_cast<uint64_t>(place) + 4096;
    copy.bytes = 4097;
    copy.direction = 1;
    f.post(copy, 1);
  });
}

}  // namespace
}  // namespace millpond::worker
