// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/claim_things.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr ThingLimits kFew{{4, 10, 10, 100, 1000, 1000}};

struct ThingsFolder {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-things-XXXXXX").string();
  ThingsFolder() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~ThingsFolder() { std::filesystem::remove_all(path); }
  std::string file() const { return path + "/things"; }
};

std::unique_ptr<ClaimThings> sit(const ThingsFolder& folder) {
  auto things = std::make_unique<ClaimThings>(kFew);
  CHECK(bool(things->enter(folder.file())));
  return things;
}

TEST("sessions of a claim have no more of a thing together than the claim may have") {
  const ThingsFolder folder;
  const auto one = sit(folder);
  const auto other = sit(folder);
  CHECK(one->hold(Thing::kStream, 7));
  CHECK(!other->hold(Thing::kStream, 4));
  CHECK_EQ(other->held(Thing::kStream), 0u);
  CHECK(other->hold(Thing::kStream, 3));
  CHECK(!one->hold(Thing::kStream, 8));
  CHECK_EQ(one->held(Thing::kStream), 7u);
  // Another kind of object has a limit of its own.
  CHECK(other->hold(Thing::kEvent, 10));
  CHECK(one->hold(Thing::kStream, 2));
  CHECK(other->hold(Thing::kStream, 8));
}

TEST("a session alone has its limits too, and amounts that would overflow a sum are refused") {
  ClaimThings alone(kFew);
  CHECK(alone.hold(Thing::kContext, 4));
  CHECK(!alone.hold(Thing::kContext, 5));
  CHECK(alone.hold(Thing::kContext, 0));
  const ThingsFolder folder;
  const auto one = sit(folder);
  const auto other = sit(folder);
  CHECK(one->hold(Thing::kHostByte, 500));
  CHECK(!other->hold(Thing::kHostByte, UINT64_MAX - 400));
}

TEST("what a session has when it enters is counted from then on") {
  const ThingsFolder folder;
  ClaimThings late(kFew);
  CHECK(late.hold(Thing::kStream, 9));
  CHECK(bool(late.enter(folder.file())));
  const auto other = sit(folder);
  CHECK(!other->hold(Thing::kStream, 2));
}

TEST("what a killed worker had is its claim's again") {
  const ThingsFolder folder;
  int ready[2];
  CHECK_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    auto things = std::make_unique<ClaimThings>(kFew);
    const bool has = things->enter(folder.file()) && things->hold(Thing::kGraphNode, 100);
    const char told = has ? 'y' : 'n';
    if (::write(ready[1], &told, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char told = 0;
  CHECK_EQ(::read(ready[0], &told, 1), 1);
  CHECK_EQ(told, 'y');
  const auto other = sit(folder);
  CHECK(!other->hold(Thing::kGraphNode, 1));
  CHECK_EQ(::kill(child, SIGKILL), 0);
  CHECK_EQ(::waitpid(child, nullptr, 0), child);
  CHECK(other->hold(Thing::kGraphNode, 100));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST("a session at rest counts until it is gone") {
  const ThingsFolder folder;
  auto one = sit(folder);
  const auto other = sit(folder);
  CHECK(one->hold(Thing::kEvent, 10));
  one->rest();
  // Its process, which is this one, still exists.
  CHECK(!other->hold(Thing::kEvent, 1));
  one.reset();
  CHECK(other->hold(Thing::kEvent, 10));
}

}  // namespace
}  // namespace millpond::worker
