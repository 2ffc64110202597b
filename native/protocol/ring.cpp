// SPDX-License-Identifier: Apache-2.0
#include "protocol/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace millpond {
namespace {

constexpr size_t kControlBytes = 4096;
constexpr size_t kSubmitOffset = kControlBytes;
constexpr size_t kReplyOffset = kSubmitOffset + wire::kSubmitBytes;
constexpr size_t kStagingOffset = kReplyOffset + wire::kReplyBytes;
constexpr size_t kStagingBytes = wire::kChunkBytes * wire::kStagingChunks;
constexpr size_t kFileBytes = kStagingOffset + kStagingBytes;
constexpr size_t kMappedBytes = kControlBytes + 2 * wire::kSubmitBytes + 2 * wire::kReplyBytes + kStagingBytes;

Error systemError(const char* what) { return {std::string(what) + ": " + std::strerror(errno)}; }

}  // namespace

Result<SessionMemory> SessionMemory::create() {
  UniqueFd file(::memfd_create("millpond-session", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return systemError("cannot make a session's shared memory");
  if (::ftruncate(file.get(), static_cast<off_t>(kFileBytes)) != 0) return systemError("cannot size shared memory");
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return systemError("cannot seal shared memory");
  auto memory = mapFile(std::move(file));
  if (memory) ::new (&memory->control()) SharedControl{};
  return memory;
}

Result<SessionMemory> SessionMemory::map(UniqueFd file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return systemError("cannot look at the worker's shared memory");
  if (static_cast<size_t>(info.st_size) != kFileBytes) return Error{"the worker's shared memory has the wrong size"};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);  // negative for what is no memory file
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Error{"the worker's shared memory is not sealed against shrinking"};
  return mapFile(std::move(file));
}

Result<SessionMemory> SessionMemory::mapFile(UniqueFd file) {
  SessionMemory memory;
  void* base = ::mmap(nullptr, kMappedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return systemError("cannot reserve addresses for shared memory");
  memory.base_ = static_cast<std::byte*>(base);
  memory.mapped_ = kMappedBytes;

  size_t at = 0;
  auto place = [&](size_t offset, size_t bytes) -> std::byte* {
    void* here = ::mmap(memory.base_ + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(),
                        static_cast<off_t>(offset));
    at += bytes;
    return here == MAP_FAILED ? nullptr : static_cast<std::byte*>(here);
  };
  std::byte* control = place(0, kControlBytes);
  memory.submit_ = place(kSubmitOffset, wire::kSubmitBytes);
  std::byte* submitAgain = place(kSubmitOffset, wire::kSubmitBytes);
  memory.reply_ = place(kReplyOffset, wire::kReplyBytes);
  std::byte* replyAgain = place(kReplyOffset, wire::kReplyBytes);
  memory.staging_ = place(kStagingOffset, kStagingBytes);
  if (!control || !memory.submit_ || !submitAgain || !memory.reply_ || !replyAgain || !memory.staging_)
    return systemError("cannot map shared memory");
  memory.control_ = reinterpret_cast<SharedControl*>(control);
  memory.file_ = std::move(file);
  return memory;
}

SessionMemory::SessionMemory(SessionMemory&& other) noexcept { *this = std::move(other); }

SessionMemory& SessionMemory::operator=(SessionMemory&& other) noexcept {
  if (this == &other) return *this;
  if (base_) ::munmap(base_, mapped_);
  file_ = std::move(other.file_);
  base_ = std::exchange(other.base_, nullptr);
  mapped_ = std::exchange(other.mapped_, 0);
  control_ = std::exchange(other.control_, nullptr);
  submit_ = std::exchange(other.submit_, nullptr);
  reply_ = std::exchange(other.reply_, nullptr);
  staging_ = std::exchange(other.staging_, nullptr);
  return *this;
}

SessionMemory::~SessionMemory() {
  if (base_) ::munmap(base_, mapped_);
}

void SessionMemory::excludeFromFork() const { ::madvise(base_, mapped_, MADV_DONTFORK); }

}  // namespace millpond
