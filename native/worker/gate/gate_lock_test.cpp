// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/gate_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "testing/check.h"
#include "worker/testing/gate_folder.h"

namespace millpond::worker::gate {
namespace {

struct LockFolder : GateFolder {
  GateLock open(int64_t patienceNs = GateLock::kPatienceNs) const {
    auto lock = GateLock::open(path + "/lock", patienceNs);
    CHECK(bool(lock));
    return std::move(*lock);
  }
};

}  // namespace

TEST("one owner at a time has it") {
  const LockFolder folder;
  std::atomic<uint32_t> word{0};
  uint64_t sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      GateLock lock = folder.open();
      for (int round = 0; round < 20'000; ++round) {
        CHECK(lock.lock(word));
        ++sum;
        lock.unlock(word);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK_EQ(sum, 80'000u);
  CHECK_EQ(word.load(), 0u);
}

TEST("owners know of each other, and not of those that have ended") {
  const LockFolder folder;
  const GateLock one = folder.open();
  uint32_t id = 0;
  {
    const GateLock two = folder.open();
    id = two.id();
    CHECK(id != one.id());
    CHECK(one.isAlive(id));
    CHECK(two.isAlive(one.id()));
  }
  CHECK(!one.isAlive(id));
  CHECK(one.isAlive(one.id()));
}

TEST("the lock of an owner that has ended is taken over, and that of one that never lets go is not waited for") {
  const LockFolder folder;
  GateLock lock = folder.open(50'000'000);
  std::atomic<uint32_t> word{folder.open().id()};
  CHECK(lock.lock(word));
  CHECK_EQ(word.load() & 0x7fffffff, lock.id());
  lock.unlock(word);
  const GateLock other = folder.open();
  word.store(other.id());
  CHECK(!lock.lock(word));
  // Its patience has run out for all such waits together.
  CHECK(!lock.lock(word));
  word.store(0);
  CHECK(lock.lock(word));
}

}  // namespace millpond::worker::gate
