// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/claim_accounts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/futex.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kMi = uint64_t{1} << 20;
constexpr uint64_t kLimit = 64 * kMi;
constexpr uint64_t kContext = 24 * kMi;
/// No test waits for sessions that continue.
constexpr ContextPatience kNone{0, 0};

struct AccountsFolder {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-accounts-XXXXXX").string();
  AccountsFolder() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~AccountsFolder() { std::filesystem::remove_all(path); }
};

std::unique_ptr<ClaimAccounts> sessionIn(const AccountsFolder& folder, size_t devices = 1) {
  ClaimPlace place;
  place.directory = folder.path;
  std::vector<DeviceAccount> parts;
  for (size_t i = 0; i < devices; ++i) parts.push_back({"GPU-" + std::to_string(i), kLimit, kContext});
  return std::make_unique<ClaimAccounts>(std::move(place), std::move(parts));
}

std::unique_ptr<ClaimAccounts> enter(const AccountsFolder& folder) {
  auto accounts = sessionIn(folder);
  const Status entered = accounts->enter(kNone);
  CHECK(bool(entered));
  return accounts;
}

/// A session in a process of its own, until it is ended.
class OtherProcess {
 public:
  explicit OtherProcess(const AccountsFolder& folder) {
    CHECK_EQ(::pipe(ready_), 0);
    CHECK_EQ(::pipe(end_), 0);
    child_ = ::fork();
    CHECK(child_ >= 0);
    if (child_ != 0) {
      char byte = 0;
      CHECK_EQ(::read(ready_[0], &byte, 1), 1);
      return;
    }
    auto accounts = sessionIn(folder);
    char byte = 0;
    if (!accounts->enter(kNone) || ::write(ready_[1], &byte, 1) != 1 || ::read(end_[0], &byte, 1) != 1) std::abort();
    accounts->rest();
    if (::write(ready_[1], &byte, 1) != 1) std::abort();
    ::usleep(300'000);  // the driver takes its time to release memory
    ::_exit(0);
  }
  ~OtherProcess() {
    for (const int each : {ready_[0], ready_[1], end_[0], end_[1]}) ::close(each);
  }
  void rest() {
    char byte = 0;
    CHECK_EQ(::write(end_[1], &byte, 1), 1);
    CHECK_EQ(::read(ready_[0], &byte, 1), 1);
  }
  void reap() { CHECK_EQ(::waitpid(child_, nullptr, 0), child_); }

 private:
  int ready_[2]{}, end_[2]{};
  pid_t child_ = 0;
};

TEST("a claim has the context of one session beside its limit, and those of further sessions count of it") {
  const AccountsFolder folder;
  auto one = enter(folder);
  ClaimBudget& budget = one->budgets()[0];
  CHECK_EQ(budget.limitBytes(), kLimit);
  CHECK_EQ(budget.left(), kLimit);
  CHECK_EQ(budget.usedBytes(), 0u);
  CHECK_EQ(one->contextInLimit(0), 0u);
  auto two = enter(folder);
  CHECK_EQ(two->contextInLimit(0), kContext);
  CHECK_EQ(budget.left(), kLimit - kContext);
  CHECK_EQ(budget.usedBytes(), kContext);
  CHECK(!budget.take(kLimit - kContext + 1));
  const auto rest = budget.take(kLimit - kContext);
  CHECK(rest.has_value());
  CHECK_EQ(two->budgets()[0].left(), 0u);
  budget.give(*rest);
  // The next one takes over the context beside the limit.
  one.reset();
  CHECK_EQ(two->contextInLimit(0), 0u);
  CHECK_EQ(two->budgets()[0].left(), kLimit);
  // Memory beside the limit is for a context only.
  CHECK(!two->budgets()[0].take(kLimit + 1));
}

TEST("a session whose context does not fit is refused with numbers, and leaves the claim as it was") {
  const AccountsFolder folder;
  auto one = enter(folder);
  const auto most = one->budgets()[0].take(kLimit - kContext + 1);
  CHECK(most.has_value());
  auto two = sessionIn(folder);
  const Status refused = two->enter(kNone);
  CHECK(!refused);
  CHECK(two->isFull());
  CHECK_EQ(
      refused.error().message,
      "the driver needs 24 MiB of device GPU-0 for one more, and of the claim's 64 MiB there is 23.9 MiB left beside 1 "
      "session");
  two.reset();
  CHECK_EQ(one->budgets()[0].left(), kContext - 1);
  CHECK_EQ(one->budgets()[0].sessions(), 1u);
  one->budgets()[0].give(*most);
  CHECK(!enter(folder)->isFull());
}

TEST("as many sessions of a claim have contexts as fit, however many begin") {
  const AccountsFolder folder;
  std::vector<std::unique_ptr<ClaimAccounts>> sessions;
  for (int i = 0; i < 100; ++i) {
    auto next = sessionIn(folder);
    if (next->enter(kNone)) sessions.push_back(std::move(next));
    CHECK(sessions.front()->budgets()[0].usedBytes() <= kLimit);
  }
  CHECK_EQ(sessions.size(), 1 + kLimit / kContext);
}

TEST("a session begins when the process of one that is over has ended") {
  const AccountsFolder folder;
  auto one = enter(folder);
  CHECK(one->budgets()[0].take(kLimit - kContext).has_value());
  OtherProcess other(folder);
  const auto refused = sessionIn(folder);
  CHECK(!refused->enter(kNone));
  other.rest();
  const int64_t began = monotonicNs();
  const auto next = sessionIn(folder);
  CHECK(bool(next->enter({0, 20'000'000'000})));
  // Not before: until then the driver holds its memory.
  CHECK(monotonicNs() - began > 100'000'000);
  other.reap();
}

TEST("a session that has to wait is told before, so that it holds nothing meanwhile, and one that fits is not") {
  const AccountsFolder folder;
  int waits = 0;
  const auto note = [&] { ++waits; };
  auto one = sessionIn(folder);
  CHECK(bool(one->enter(kNone, note)));
  CHECK_EQ(waits, 0);
  CHECK(one->budgets()[0].take(kLimit).has_value());
  auto two = sessionIn(folder);
  CHECK(!two->enter({50'000'000, 50'000'000}, note));
  CHECK_EQ(waits, 1);
}

TEST("a session of several devices has a context on each, and one device without room refuses it") {
  const AccountsFolder folder;
  auto one = sessionIn(folder, 2);
  CHECK(bool(one->enter(kNone)));
  CHECK(one->budgets()[1].take(kLimit).has_value());
  auto two = sessionIn(folder, 2);
  const Status refused = two->enter(kNone);
  CHECK(!refused);
  CHECK(refused.error().message.find("GPU-1") != std::string::npos);
  CHECK_EQ(one->budgets()[0].left(), kLimit - kContext);
  two.reset();
  CHECK_EQ(one->budgets()[0].left(), kLimit);
}

TEST("sessions have host memory from their start, as many as the claim has room for") {
  const AccountsFolder folder;
  ClaimPlace place;
  place.directory = folder.path;
  place.limits.most[static_cast<size_t>(Thing::kHostByte)] = 200 * kMi;
  place.sessionHostBytes = 64 * kMi;
  const std::vector<DeviceAccount> parts{{"GPU-0", kLimit, 0}};
  std::vector<std::unique_ptr<ClaimAccounts>> sessions;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(std::make_unique<ClaimAccounts>(place, parts));
    CHECK(bool(sessions.back()->enter(kNone)));
  }
  auto fourth = std::make_unique<ClaimAccounts>(place, parts);
  const Status refused = fourth->enter(kNone);
  CHECK(!refused);
  CHECK(fourth->isFull());
  fourth.reset();
  CHECK_EQ(
      refused.error().message,
      "a session needs 64 MiB of host memory, and the others of the claim have 192 MiB of the 200 MiB that it may have on "
      "this node");
  // Memory of their programs is in the same budget.
  sessions.pop_back();
  CHECK(sessions[0]->things().hold(Thing::kHostByte, (64 + 9) * kMi));
  CHECK(!std::make_unique<ClaimAccounts>(place, parts)->enter(kNone));
  CHECK(sessions[0]->things().hold(Thing::kHostByte, 64 * kMi));
  CHECK(bool(std::make_unique<ClaimAccounts>(place, parts)->enter(kNone)));
}

TEST("a resize leaves the context beside the limit, and is refused where contexts are in use") {
  const AccountsFolder folder;
  auto one = enter(folder);
  auto two = enter(folder);
  const uint64_t less[] = {kContext - 1};
  const Status refused = one->setLimits(less, 1);
  CHECK(!refused);
  CHECK(refused.error().message.find("24 MiB in use on device 0") != std::string::npos);
  const uint64_t same[] = {kContext};
  CHECK(bool(one->setLimits(same, 1)));
  CHECK_EQ(two->budgets()[0].limitBytes(), kContext);
  CHECK_EQ(two->budgets()[0].left(), 0u);
}

}  // namespace
}  // namespace millpond::worker
