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
  const auto seat = one->sit({ServiceClass::kGuaranteed, 30}, 0);
  CHECK(seat.has_value());
  CHECK_EQ(two->taken(), 1u);
  const auto other = two->sit({ServiceClass::kBurstable, 30}, 0);
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
    const auto seat = there->sit({ServiceClass::kGuaranteed, 100}, 0);
    GateFile::Locked locked(*there);
    locked.turns.takeOff(*seat, 0);
    if (!locked.turns.ask(*seat, 0).isMine) std::abort();
    ::kill(::getpid(), SIGKILL);  // with the table locked
  });
  const auto seat = here->sit({ServiceClass::kGuaranteed, 50}, 1);
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
  std::thread([&] { CHECK(file->sit({}, 0).has_value()); }).join();
  CHECK_EQ(file->taken(), 1u);
  file->sweep(1);
  CHECK_EQ(file->taken(), 0u);
}

TEST("whoever lives keeps its seat, and there are only so many") {
  const Folder folder;
  const auto file = open(folder);
  for (uint32_t i = 0; i < kSeats; ++i) CHECK(file->sit({}, 0).has_value());
  file->sweep(1);
  CHECK(!file->sit({}, 1).has_value());
  file->leave(7, 1);
  CHECK_EQ(file->sit({}, 1).value_or(kNobody), 7u);
  for (uint32_t i = 0; i < kSeats; ++i) file->leave(i, 1);
  CHECK_EQ(file->taken(), 0u);
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
