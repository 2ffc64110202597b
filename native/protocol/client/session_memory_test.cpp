// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "protocol/rings/ring.h"
#include "testing/check.h"

namespace millpond {
namespace {

constexpr size_t kFileBytes = 4096 + wire::kSubmitBytes + wire::kReplyBytes + wire::kChunkBytes * wire::kStagingChunks;

UniqueFd memoryFile(size_t bytes, int seals) {
  UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(bool(file));
  CHECK_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  if (seals) CHECK_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

std::string refusal(UniqueFd file) {
  auto mapped = SessionMemory::map(std::move(file));
  return mapped ? "" : mapped.error().message;
}

TEST("both sides see the same memory, at places of their own") {
  auto made = SessionMemory::create();
  CHECK(bool(made));
  auto mapped = SessionMemory::map(UniqueFd(::dup(made->file())));
  CHECK(bool(mapped));
  CHECK(&made->control() != &mapped->control());
  CHECK(made->control().failures.keep(719, 3));
  CHECK_EQ(mapped->control().failures.first(), wire::packFailure(719, 3));
  mapped->submit()[0] = std::byte{1};
  mapped->reply()[wire::kReplyBytes - 1] = std::byte{2};
  mapped->chunk(wire::kStagingChunks - 1)[wire::kChunkBytes - 1] = std::byte{3};
  CHECK(made->submit()[wire::kSubmitBytes] == std::byte{1});  // mapped twice in a row
  CHECK(made->reply()[2 * wire::kReplyBytes - 1] == std::byte{2});
  CHECK(made->chunk(wire::kStagingChunks - 1)[wire::kChunkBytes - 1] == std::byte{3});
  CHECK_EQ(made->submitRun().size(), 2 * wire::kSubmitBytes);
  CHECK_EQ(made->stagingRun().size(), wire::kChunkBytes * wire::kStagingChunks);
}

TEST("neither side can change the size or the seals") {
  auto made = SessionMemory::create();
  CHECK(bool(made));
  UniqueFd peer(::dup(made->file()));
  for (const off_t size : {off_t{0}, static_cast<off_t>(kFileBytes - 1), static_cast<off_t>(kFileBytes + 1)}) {
    errno = 0;
    CHECK_EQ(::ftruncate(peer.get(), size), -1);
    CHECK_EQ(errno, EPERM);
  }
  CHECK_EQ(::fcntl(peer.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  struct stat info {};
  CHECK_EQ(::fstat(peer.get(), &info), 0);
  CHECK_EQ(static_cast<size_t>(info.st_size), kFileBytes);
}

TEST("a new session's words are zero") {
  auto made = SessionMemory::create();
  CHECK(bool(made));
  const SharedControl& control = made->control();
  CHECK_EQ(control.submit.head.load() + control.submit.tail.load(), 0u);
  CHECK_EQ(control.reply.head.load() + control.reply.tail.load(), 0u);
  CHECK_EQ(control.failures.first(), 0);
  for (const auto& busy : control.chunkBusy) CHECK_EQ(busy.load(), 0u);
}

TEST("memory of another size is refused") {
  for (const size_t size : {size_t{0}, size_t{4096}, kFileBytes - 4096, kFileBytes + 4096})
    CHECK_EQ(refusal(memoryFile(size, F_SEAL_SHRINK | F_SEAL_GROW)), "the worker's shared memory has the wrong size");
  CHECK_EQ(refusal(memoryFile(kFileBytes, F_SEAL_SHRINK)), "");
}

TEST("memory that could shrink is refused, also where a file knows no seals") {
  const std::string unsealed = "the worker's shared memory is not sealed against shrinking";
  CHECK_EQ(refusal(memoryFile(kFileBytes, 0)), unsealed);
  CHECK_EQ(refusal(memoryFile(kFileBytes, F_SEAL_GROW)), unsealed);

  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder ? folder : "/tmp") + "/millpond-test-XXXXXX";
  UniqueFd file(::mkstemp(path.data()));
  CHECK(bool(file));
  CHECK_EQ(::unlink(path.c_str()), 0);
  CHECK_EQ(::ftruncate(file.get(), static_cast<off_t>(kFileBytes)), 0);
  CHECK_EQ(refusal(std::move(file)), unsealed);

  int ends[2];
  CHECK_EQ(::pipe(ends), 0);
  UniqueFd other(ends[1]);
  CHECK(!refusal(UniqueFd(ends[0])).empty());
  CHECK(refusal(UniqueFd()).starts_with("cannot look at"));
}

TEST("moving keeps one mapping and leaves nothing behind") {
  auto made = SessionMemory::create();
  CHECK(bool(made));
  const int file = made->file();
  SharedControl* control = &made->control();
  SessionMemory first = std::move(*made);
  SessionMemory second;
  second = std::move(first);
  CHECK_EQ(second.file(), file);
  CHECK(&second.control() == control);
  control->closed.store(1);
  SessionMemory other = std::move(*SessionMemory::create());
  second = std::move(other);  // unmaps its present memory
  CHECK(::fcntl(second.file(), F_GETFD) >= 0);
  CHECK_EQ(second.control().closed.load(), 0u);
}

TEST("a forked child does not have the memory of a client") {
  auto made = SessionMemory::create();
  CHECK(bool(made));
  made->excludeFromFork();
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    unsigned char resident = 0;
    // Not mapped at all in the child.
    std::_Exit(::mincore(&made->control(), 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace millpond
