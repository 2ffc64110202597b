// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/claim_budget.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "protocol/futex.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

struct BudgetFolder {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-claim-XXXXXX").string();
  BudgetFolder() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~BudgetFolder() { std::filesystem::remove_all(path); }
  std::string file() const { return path + "/GPU-1"; }
};

std::unique_ptr<ClaimBudget> enter(const BudgetFolder& folder, uint64_t limit = 64 * kMebibyte, uint64_t revision = 1) {
  auto budget = std::make_unique<ClaimBudget>(limit);
  const Status entered = budget->enter(folder.file(), revision);
  CHECK(bool(entered));
  return budget;
}

/// Runs `body` in a process of its own.
pid_t start(const std::function<void()>& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

void reap(pid_t child) { CHECK_EQ(::waitpid(child, nullptr, 0), child); }

/// Takes, releases, shares and opens memory endlessly, and dies when it sees an inconsistency.
[[noreturn]] void disturb(const BudgetFolder& folder, uint32_t seed) {
  auto budget = std::make_unique<ClaimBudget>(64 * kMebibyte);
  if (!budget->enter(folder.file(), 1)) std::abort();
  std::mt19937 random(seed);
  std::vector<ClaimBudget::Charge> held;
  uint64_t shared = 4;
  for (;;) {
    const uint64_t bytes = random() % 2 ? kMebibyte : 1 + random() % (4 * kMebibyte);
    switch (random() % 4) {
      case 0:
        if (const auto charge = budget->take(bytes)) held.push_back(*charge);
        break;
      case 1:
        // Whatever number it guesses: it is another session's memory, or counts as its own.
        if (const auto charge = budget->join(shared - 3 + random() % 7, kMebibyte)) held.push_back(*charge);
        break;
      case 2:
        if (held.empty()) break;
        if (auto& any = held[random() % held.size()]; budget->share(any), any.shared) shared = any.shared;
        break;
      default:
        if (held.empty()) break;
        std::swap(held[random() % held.size()], held.back());
        budget->give(held.back());
        held.pop_back();
    }
    uint64_t own = 0;
    std::vector<uint64_t> seen;
    for (const auto& each : held) {
      if (each.shared && std::find(seen.begin(), seen.end(), each.shared) != seen.end()) continue;
      if (each.shared) seen.push_back(each.shared);
      own += each.bytes;
    }
    if (budget->ownBytes() != own || budget->usedBytes() < own) std::abort();
  }
}

}  // namespace

TEST("a session that shares with none has its limit for itself, to the byte") {
  ClaimBudget budget(10);
  const auto some = budget.take(7);
  CHECK(some.has_value());
  CHECK(!budget.take(4));
  CHECK(budget.take(3).has_value());
  CHECK_EQ(budget.left(), 0u);
  budget.give(*some);
  CHECK_EQ(budget.usedBytes(), 3u);
  CHECK(!budget.take(UINT64_MAX));
}

TEST("the sessions of a claim have its limit together, to the byte, and each gives back its own only") {
  const BudgetFolder folder;
  const auto one = enter(folder);
  const auto two = enter(folder);
  const auto first = one->take(40 * kMebibyte);
  CHECK(first.has_value());
  CHECK(!two->take(24 * kMebibyte + 1));
  CHECK(two->take(24 * kMebibyte).has_value());
  CHECK_EQ(one->left(), 0u);
  CHECK_EQ(one->ownBytes(), 40 * kMebibyte);
  CHECK_EQ(two->ownBytes(), 24 * kMebibyte);
  one->give(*first);
  CHECK_EQ(two->left(), 40 * kMebibyte);
}

TEST("what a session leaves is given back with it") {
  const BudgetFolder folder;
  const auto one = enter(folder);
  {
    const auto two = enter(folder);
    CHECK(two->take(60 * kMebibyte).has_value());
    CHECK_EQ(one->left(), 4 * kMebibyte);
  }
  CHECK_EQ(one->left(), 64 * kMebibyte);
}

TEST("memory that several sessions have open counts once, until the last of them gives it back, in whatever order") {
  const BudgetFolder folder;
  const auto maker = enter(folder);
  const auto other = enter(folder);
  const auto third = enter(folder);
  auto made = maker->take(40 * kMebibyte);
  maker->share(*made);
  const auto opened = other->join(made->shared, 40 * kMebibyte);
  const auto again = other->join(made->shared, 40 * kMebibyte);
  CHECK(opened.has_value() && again.has_value());
  CHECK_EQ(third->usedBytes(), 40 * kMebibyte);
  CHECK_EQ(other->ownBytes(), 40 * kMebibyte);
  maker->give(*made);
  CHECK_EQ(maker->ownBytes(), 0u);
  other->give(*again);
  CHECK_EQ(third->usedBytes(), 40 * kMebibyte);
  CHECK(!third->take(24 * kMebibyte + 1));
  other->give(*opened);
  CHECK_EQ(third->usedBytes(), 0u);
  // Nothing is left to open: the memory counts like any other.
  const auto late = other->join(made->shared, 40 * kMebibyte);
  CHECK(late.has_value() && late->shared == 0);
  CHECK(!third->join(made->shared, 40 * kMebibyte));
}

TEST("memory that a killed session has shared counts as long as another has it open") {
  const BudgetFolder folder;
  const auto here = enter(folder);
  int pipe[2];
  CHECK_EQ(::pipe(pipe), 0);
  const pid_t child = start([&] {
    const auto there = enter(folder);
    auto made = there->take(40 * kMebibyte);
    there->share(*made);
    if (!there->take(10 * kMebibyte) || ::write(pipe[1], &made->shared, sizeof(uint64_t)) != sizeof(uint64_t))
      std::abort();
    for (;;) ::pause();
  });
  uint64_t number = 0;
  CHECK_EQ(::read(pipe[0], &number, sizeof number), static_cast<ssize_t>(sizeof number));
  const auto opened = here->join(number, 40 * kMebibyte);
  CHECK_EQ(here->usedBytes(), 50 * kMebibyte);
  ::kill(child, SIGKILL);
  reap(child);
  CHECK_EQ(here->usedBytes(), 40 * kMebibyte);
  here->give(*opened);
  CHECK_EQ(here->usedBytes(), 0u);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST("what a session has counts until its process is gone, however long that takes after its end") {
  const BudgetFolder folder;
  const auto here = enter(folder);
  int ready[2], end[2];
  CHECK_EQ(::pipe(ready), 0);
  CHECK_EQ(::pipe(end), 0);
  const pid_t child = start([&] {
    std::thread([&] {
      auto* there = new ClaimBudget(64 * kMebibyte);
      if (!there->enter(folder.file(), 1) || !there->take(60 * kMebibyte)) std::abort();
      there->rest();
    }).join();
    char byte = 0;
    if (::write(ready[1], &byte, 1) != 1 || ::read(end[0], &byte, 1) != 1) std::abort();
  });
  char byte = 0;
  CHECK_EQ(::read(ready[0], &byte, 1), 1);
  CHECK_EQ(here->left(), 4 * kMebibyte);
  CHECK(!here->take(5 * kMebibyte));
  CHECK_EQ(::write(end[1], &byte, 1), 1);
  reap(child);
  CHECK(here->take(64 * kMebibyte).has_value());
  for (const int each : {ready[0], ready[1], end[0], end[1]}) ::close(each);
}

TEST("a new limit holds for all sessions, only where all of them have less, and the latest revision counts") {
  const BudgetFolder folder;
  const auto one = enter(folder, 64 * kMebibyte, 1);
  const auto two = enter(folder, 64 * kMebibyte, 1);
  CHECK(two->take(30 * kMebibyte).has_value());
  CHECK(!one->setLimit(29 * kMebibyte, 2));
  CHECK_EQ(two->limitBytes(), 64 * kMebibyte);
  CHECK(one->setLimit(32 * kMebibyte, 2));
  CHECK_EQ(two->left(), 2 * kMebibyte);
  // The other session receives it too, and so does one that joins late.
  CHECK(two->setLimit(32 * kMebibyte, 2));
  CHECK(two->setLimit(64 * kMebibyte, 1));
  CHECK_EQ(one->limitBytes(), 32 * kMebibyte);
  const auto late = enter(folder, 64 * kMebibyte, 1);
  CHECK_EQ(late->limitBytes(), 32 * kMebibyte);
  const auto next = enter(folder, 16 * kMebibyte, 3);
  CHECK_EQ(one->limitBytes(), 16 * kMebibyte);
  CHECK_EQ(one->left(), 0u);
  CHECK(!two->setLimit(16 * kMebibyte, 3));
}

TEST("a file that is no budget is refused, and says so") {
  const BudgetFolder folder;
  std::ofstream(folder.file()) << "something else";
  ClaimBudget budget(kMebibyte);
  const Status entered = budget.enter(folder.file(), 1);
  CHECK(!entered);
  CHECK(entered.error().message.find("another release") != std::string::npos);
}

TEST("whatever is killed at whatever moment, the sum is within the limit, and what is left is what lives") {
  const BudgetFolder folder;
  const auto here = enter(folder);
  const auto own = here->take(3 * kMebibyte);
  std::mt19937 random(4711);
  for (int round = 0; round < 60; ++round) {
    std::vector<pid_t> children;
    for (uint32_t i = 0; i < 3; ++i) {
      const auto seed = static_cast<uint32_t>(random());
      children.push_back(start([&] { disturb(folder, seed); }));
    }
    const int64_t until = monotonicNs() + static_cast<int64_t>(random() % 20'000'000);
    while (monotonicNs() < until) {
      const uint64_t used = here->usedBytes();
      CHECK(used <= 64 * kMebibyte);
      CHECK(used >= 3 * kMebibyte);
    }
    for (const pid_t child : children) {
      ::kill(child, SIGKILL);
      int status = 0;
      CHECK_EQ(::waitpid(child, &status, 0), child);
      CHECK(WIFSIGNALED(status));
      CHECK_EQ(WTERMSIG(status), SIGKILL);
    }
    CHECK_EQ(here->usedBytes(), 3 * kMebibyte);
    const auto all = here->take(61 * kMebibyte);
    CHECK(all.has_value());
    here->give(*all);
  }
  here->give(*own);
}

}  // namespace millpond::worker
