// SPDX-License-Identifier: Apache-2.0
// A client chooses the handles of its objects: this one uses the worst numbers, creates as many objects as allowed, and
// uses objects that it never created.
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "worker/testing/own_session.h"

namespace millpond::worker {
namespace {

size_t entriesOf(const char* folder) {
  DIR* const open = ::opendir(folder);
  CHECK(open != nullptr);
  size_t count = 0;
  while (::readdir(open)) ++count;
  ::closedir(open);
  return count;
}

uint64_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

void makeEvent(OwnSession& session, uint64_t handle) {
  cmd::EventCreate command{};
  command.phEvent = handle;
  session.run(command);
}

constexpr uint32_t kLast = handle::kMaxHandles - 1;

TEST("the largest numbers of every kind of handle take no more of the node than a table of all of them") {
  const uint64_t before = residentBytes();
  OwnSession session(Carrier::kSharedMemory);
  session.makeStream(kLast);
  makeEvent(session, handle::make(HandleKind::kEvent, kLast - 1, 0xffff));
  session.run(cmd::ContextSync{});
  CHECK(!session.isLost());
  const uint64_t grown = residentBytes() - std::min(before, residentBytes());
  std::printf("  the worker has %llu MiB more\n", static_cast<unsigned long long>(grown >> 20));
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(grown < (uint64_t{128} << 20));
#endif
  CHECK(session.finish().ok);
}

TEST("a handle that is made twice, and one of no kind, end the session and nothing else") {
  for (const uint64_t second :
       {handle::make(HandleKind::kEvent, 7, 1), handle::make(HandleKind::kEvent, 7, 2), uint64_t{0}}) {
    OwnSession session(Carrier::kSharedMemory);
    makeEvent(session, handle::make(HandleKind::kEvent, 7, 1));
    makeEvent(session, second);
    session.run(cmd::ContextSync{});
    CHECK(session.isLost());
    CHECK(!session.finish().ok);
  }
}

TEST("what was never made, of every kind, is neither used nor ended") {
  for (uint8_t kind = 0; kind < kHandleKinds; ++kind) {
    for (const uint32_t index : {uint32_t{1}, kLast}) {
      OwnSession session(Carrier::kSharedMemory);
      cmd::StreamSync use{};
      use.stream = handle::make(static_cast<HandleKind>(kind), index, 0xffff);
      const int32_t used = session.run(use);
      CHECK(used != 0);
      session.finish();
    }
  }
}

TEST("ten thousand events and a thousand streams take no files, and no thread each") {
  OwnSession session(Carrier::kSharedMemory);
  session.run(cmd::ContextSync{});
  const size_t files = entriesOf("/proc/self/fd");
  const size_t threads = entriesOf("/proc/self/task");
  for (uint32_t n = 1; n <= 10'000; ++n) makeEvent(session, handle::make(HandleKind::kEvent, n, 1));
  for (uint32_t n = 10'001; n <= 11'000; ++n) session.makeStream(n);
  session.run(cmd::ContextSync{});
  CHECK(!session.isLost());
  CHECK_EQ(session.session().takeFailure(), 0);
  std::printf("  %zu files and %zu threads more\n", entriesOf("/proc/self/fd") - files,
              entriesOf("/proc/self/task") - threads);
  CHECK(entriesOf("/proc/self/fd") <= files + 8);
  CHECK(entriesOf("/proc/self/task") <= threads + 64);
  CHECK(session.finish().ok);
}

}  // namespace
}  // namespace millpond::worker
