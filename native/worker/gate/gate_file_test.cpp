// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/gate_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "testing/check.h"

namespace millpond::worker::gate {
namespace {

struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-gates-XXXXXX").string();
  Folder() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string gate() const { return path + "/GPU-1"; }
};

std::unique_ptr<GateFile> open(const Folder& folder) {
  auto file = GateFile::open(folder.gate());
  CHECK(bool(file));
  return std::move(*file);
}

/// In a process of its own, which kills itself.
void inDyingProcess(const std::function<void()>& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status));
}

}  // namespace

TEST("all who open a gate sit at one table") {
  const Folder folder;
  const auto one = open(folder);
  const auto two = open(folder);
  const auto seat = one->sit(1, {ServiceClass::kGuaranteed, 30}, 0);
  CHECK(seat.has_value());
  CHECK_EQ(two->taken(), 1u);
  const auto other = two->sit(2, {ServiceClass::kBurstable, 30}, 0);
  CHECK(other.has_value());
  CHECK(*other != *seat);
  CHECK_EQ(one->taken(), 2u);
  two->leave(*other, 0);
  one->leave(*seat, 0);
  CHECK_EQ(two->taken(), 0u);
}

TEST("the seat of a process that was killed is free again, and so is its turn") {
  const Folder folder;
  const auto here = open(folder);
  inDyingProcess([&] {
    const auto there = open(folder);
    const auto seat = there->sit(1, {ServiceClass::kGuaranteed, 100}, 0);
    GateFile::Locked locked(*there);
    locked.turns.takeOff(*seat, 0);
    if (!locked.turns.ask(*seat, 0).isMine) std::abort();
    ::kill(::getpid(), SIGKILL);  // with the table locked
  });
  const auto seat = here->sit(2, {ServiceClass::kGuaranteed, 50}, 1);
  CHECK(seat.has_value());
  CHECK_EQ(here->taken(), 1u);
  {
    GateFile::Locked locked(*here);
    CHECK(locked.turns.ask(*seat, 1).isMine);
    // The dead one's work is not thought to be in flight.
    locked.turns.takeOff(*seat, 1);
    const int64_t before = locked.turns.sharedTime(1);
    CHECK_EQ(locked.turns.sharedTime(1001), before + 1000);
  }
  here->leave(*seat, 1001);
}

TEST("a thread that ends without leaving has left") {
  const Folder folder;
  const auto file = open(folder);
  std::thread([&] { CHECK(file->sit(1, {}, 0).has_value()); }).join();
  CHECK_EQ(file->taken(), 1u);
  file->sweep(1);
  CHECK_EQ(file->taken(), 0u);
}

TEST("whoever lives keeps its seat, and there are only so many") {
  const Folder folder;
  const auto file = open(folder);
  for (uint32_t i = 0; i < kSeats; ++i) CHECK(file->sit(1 + i % kAccounts, {}, 0).has_value());
  CHECK_EQ(file->claims(), kAccounts);
  file->sweep(1);
  CHECK(!file->sit(1, {}, 1).has_value());
  file->leave(7, 1);
  CHECK(!file->sit(kAccounts + 1, {}, 1).has_value());
  CHECK_EQ(file->sit(9, {}, 1).value_or(kNobody), 7u);
  for (uint32_t i = 0; i < kSeats; ++i) file->leave(i, 1);
  CHECK_EQ(file->taken(), 0u);
}

TEST("what a claim owes is kept when its sessions have ended, in whatever way, and not the next claim's") {
  const Folder folder;
  const auto here = open(folder);
  constexpr Share kTenth{ServiceClass::kGuaranteed, 10};
  constexpr int64_t kMs = 1'000'000;
  inDyingProcess([&] {
    const auto there = open(folder);
    const auto seat = there->sit(1, kTenth, 0);
    GateFile::Locked(*there).turns.charge(*seat, 100 * 60'000 * kMs, 0);
    ::kill(::getpid(), SIGKILL);
  });
  const int64_t owed = 100 * 60'000 * kMs;
  const auto again = here->sit(1, kTenth, 1'000 * kMs);
  const auto other = here->sit(2, kTenth, 1'000 * kMs);
  {
    GateFile::Locked locked(*here);
    const int64_t credit = locked.turns.credit(*again, 1'000 * kMs);
    CHECK(credit < -owed + 150 * kMs);
    CHECK(credit >= -owed + 100 * kMs);
    CHECK(locked.turns.credit(*other, 1'000 * kMs) > 0);
  }
  here->leave(*again, 1'000 * kMs);
  here->leave(*other, 1'000 * kMs);
  // Whatever other claims come and go, it is the last debt that is forgotten.
  for (uint64_t claim = 3; claim < 3 + 2 * kAccounts; ++claim) here->leave(*here->sit(claim, kTenth, 1'001 * kMs), 1'001 * kMs);
  const auto later = here->sit(1, kTenth, 2'000 * kMs);
  CHECK(GateFile::Locked(*here).turns.credit(*later, 2'000 * kMs) < -owed + 300 * kMs);
  here->leave(*later, 2'000 * kMs);
}

TEST("a file that is no gate is refused, and says so") {
  const Folder folder;
  std::ofstream(folder.gate()) << "something else";
  const auto file = GateFile::open(folder.gate());
  CHECK(!file);
  CHECK(file.error().message.find("another release") != std::string::npos);
  CHECK(!GateFile::open(folder.path + "/nowhere/GPU-1"));
}

}  // namespace millpond::worker::gate
