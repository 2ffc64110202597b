// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/host/ledger.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <set>
#include <vector>

#include "softgpu/driver/host/configuration.h"
#include "softgpu/driver/model/device.h"
#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {
namespace {

/// A child process that runs a function and then waits to be ended.
class Child {
 public:
  template <typename Body>
  explicit Child(Body body) {
    int ends[2];
    CHECK(::pipe(ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      // A failed check of the parent must not leave this process behind.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      const char done = 1;
      if (::write(ends[1], &done, 1) != 1) ::_exit(2);
      while (true) ::pause();
    }
    char done = 0;
    CHECK(::read(ends[0], &done, 1) == 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Child() {
    if (pid_ > 0) reap();
  }
  void kill() { CHECK(::kill(pid_, SIGKILL) == 0); }
  void awaitZombie() {
    siginfo_t info{};
    CHECK(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0);
  }
  void reap() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

std::unique_ptr<Ledger> open(const std::string& path) {
  Result<std::unique_ptr<Ledger>> ledger = Ledger::open(path);
  CHECK(ledger);
  return std::move(*ledger);
}

TEST("a ledger counts and refuses more than there is") {
  TemporaryDirectory directory;
  auto ledger = open(directory.path() + "/ledger");
  CHECK_EQ(ledger->used(), uint64_t{0});
  CHECK(ledger->charge(60, 100));
  CHECK(!ledger->charge(41, 100));
  CHECK(ledger->charge(40, 100));
  CHECK(!ledger->charge(1, 100));
  ledger->release(70);
  CHECK_EQ(ledger->used(), uint64_t{30});
  CHECK(!ledger->charge(UINT64_MAX, 100));
}

TEST("processes share a ledger, and a killed one gives its memory back before it is reaped") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/ledger";
  Child child([&] { CHECK(open(path).release()->charge(70, 100)); });
  auto ledger = open(path);
  CHECK_EQ(ledger->used(), uint64_t{70});
  CHECK(!ledger->charge(31, 100));
  CHECK(ledger->charge(30, 100));
  child.kill();
  child.awaitZombie();
  CHECK(ledger->charge(70, 100));
  CHECK_EQ(ledger->used(), uint64_t{100});
}

TEST("entries of other lives of a process ID are reclaimed, those of other namespaces kept") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/ledger";
  struct stat ns {};
  CHECK(::stat("/proc/self/ns/pid", &ns) == 0);
  const std::array<std::array<uint64_t, 4>, 2> entries = {{
      {static_cast<uint64_t>(::getpid()), processStartTime(::getpid()) + 7, ns.st_ino, 50},
      {static_cast<uint64_t>(::getpid()), 1, ns.st_ino + 1, 20},
  }};
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  CHECK(::write(file.get(), entries.data(), sizeof(entries)) == sizeof(entries));
  auto ledger = open(path);
  CHECK_EQ(ledger->used(), uint64_t{20});
  CHECK(ledger->charge(80, 100));
  CHECK(!ledger->charge(1, 100));
}

TEST("however many processes have come and gone, there is an entry for the next one, and the file does not grow") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/ledger";
  struct stat ns {};
  CHECK(::stat("/proc/self/ns/pid", &ns) == 0);
  for (const uint64_t count : {uint64_t{3}, uint64_t{4096}}) {
    std::vector<std::array<uint64_t, 4>> entries(
        count, {static_cast<uint64_t>(::getpid()), processStartTime(::getpid()) + 7, ns.st_ino, 0});
    const size_t bytes = entries.size() * sizeof(entries[0]);
    UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT, 0600));
    CHECK(::write(file.get(), entries.data(), bytes) == static_cast<ssize_t>(bytes));
    CHECK(open(path)->charge(100, 100));
    struct stat status {};
    CHECK(::stat(path.c_str(), &status) == 0);
    CHECK_EQ(static_cast<size_t>(status.st_size), bytes);
  }
}

TEST("processes that charge and release at the same time never exceed the capacity") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/ledger";
  constexpr int kProcesses = 4;
  std::array<pid_t, kProcesses> pids{};
  for (pid_t& pid : pids) {
    pid = ::fork();
    if (pid != 0) continue;
    auto ledger = open(path);
    for (int i = 0; i < 300; ++i) {
      if (!ledger->charge(30, 100)) continue;
      if (ledger->used() > 100) ::_exit(1);
      ledger->release(30);
    }
    ::_exit(0);
  }
  for (pid_t pid : pids) {
    int status = 0;
    CHECK(::waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
  }
  CHECK_EQ(open(path)->used(), uint64_t{0});
}

TEST("a file cut off in the middle of an entry is read as far as it goes") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/ledger";
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  CHECK(::write(file.get(), "garbage", 7) == 7);
  auto ledger = open(path);
  CHECK(ledger->charge(10, 100));
  CHECK_EQ(ledger->used(), uint64_t{10});
}

TEST("UUIDs depend on seed and ordinal and on nothing else") {
  CHECK(deviceUuid("a", 0) == deviceUuid("a", 0));
  std::set<std::array<uint8_t, 16>> uuids;
  for (const char* seed : {"a", "b", "node-1"}) {
    for (unsigned ordinal = 0; ordinal < 8; ++ordinal) uuids.insert(deviceUuid(seed, ordinal));
  }
  CHECK_EQ(uuids.size(), size_t{24});
}

TEST("sizes") {
  CHECK_EQ(*parseSize("512Mi"), uint64_t{512} << 20);
  CHECK_EQ(*parseSize("4Gi"), uint64_t{4} << 30);
  CHECK_EQ(*parseSize("4G"), uint64_t{4} << 30);
  CHECK_EQ(*parseSize("1048576"), uint64_t{1} << 20);
  for (const char* bad : {"", "Mi", "1X", "1Mib", "-1Gi", "1 Gi", "99999999999999999999", "17179869184Gi"}) {
    CHECK(!parseSize(bad));
  }
}

TEST("the environment is checked") {
  configure();
  ::setenv("MILLPOND_SOFTGPU_DEVICES", "3", 1);
  ::setenv("MILLPOND_SOFTGPU_MEMORY", "1Gi", 1);
  Result<Configuration> configuration = readConfiguration();
  CHECK(configuration);
  CHECK_EQ(configuration->devices, 3u);
  CHECK_EQ(configuration->memoryBytes, uint64_t{1} << 30);
  for (const char* bad : {"65", "-1", "two", "1.5"}) {
    ::setenv("MILLPOND_SOFTGPU_DEVICES", bad, 1);
    configuration = readConfiguration();
    CHECK(!configuration);
    CHECK(configuration.error().message.find("MILLPOND_SOFTGPU_DEVICES") != std::string::npos);
  }
  ::setenv("MILLPOND_SOFTGPU_DEVICES", "1", 1);
  for (const char* bad : {"1Mi", "2Ti", "lots"}) {
    ::setenv("MILLPOND_SOFTGPU_MEMORY", bad, 1);
    CHECK(!readConfiguration());
  }
}

}  // namespace
}  // namespace millpond::softgpu::testing
