// SPDX-License-Identifier: Apache-2.0
#include "protocol/rings/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "protocol/above_standard.h"

namespace millpond {
namespace {

constexpr size_t kControlBytes = 4096;
constexpr size_t kSubmitOffset = kControlBytes;
constexpr size_t kReplyOffset = kSubmitOffset + wire::kSubmitBytes;
constexpr size_t kStagingOffset = kReplyOffset + wire::kReplyBytes;
constexpr size_t kStagingBytes = wire::kChunkBytes * wire::kStagingChunks;
constexpr size_t kFileBytes = kStagingOffset + kStagingBytes;
constexpr size_t kMappedBytes = kControlBytes + 2 * wire::kSubmitBytes + 2 * wire::kReplyBytes + kStagingBytes;

/// Other threads may read there concurrently, and see the old value or the new one. The thread sanitizer would report
/// it as a write.
void* mapOver(void* at, size_t bytes, int file, size_t offset) {
#ifdef __SANITIZE_THREAD__
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, offset));
#else
  return ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset));
#endif
}

Error systemError(const char* what) { return {std::string(what) + ": " + std::strerror(errno)}; }

}  // namespace

Result<SessionMemory> SessionMemory::create() {
  UniqueFd file = aboveStandard(UniqueFd(::memfd_create("millpond-session", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!file) return systemError("cannot make a session's shared memory");
  if (::ftruncate(file.get(), static_cast<off_t>(kFileBytes)) != 0) return systemError("cannot size shared memory");
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return systemError("cannot seal shared memory");
  auto memory = mapFile(std::move(file));
  if (memory) ::new (&memory->control()) SharedControl{};
  return memory;
}

Status SessionMemory::check(const UniqueFd& file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return systemError("cannot look at the worker's shared memory");
  if (static_cast<size_t>(info.st_size) != kFileBytes) return Error{"the worker's shared memory has the wrong size"};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);  // negative if it is not a memory file
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Error{"the worker's shared memory is not sealed against shrinking"};
  return Done{};
}

Result<SessionMemory> SessionMemory::map(UniqueFd file) {
  if (auto fits = check(file); !fits) return fits.error();
  return mapFile(std::move(file));
}

Result<SessionMemory> SessionMemory::mapFile(UniqueFd file) {
  SessionMemory memory;
  void* base = ::mmap(nullptr, kMappedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return systemError("cannot reserve addresses for shared memory");
  memory.base_ = static_cast<std::byte*>(base);
  memory.mapped_ = kMappedBytes;
  if (auto mapped = memory.mapAt(std::move(file)); !mapped) return mapped.error();
  memory.control_ = reinterpret_cast<SharedControl*>(memory.base_);
  memory.submit_ = memory.base_ + kControlBytes;
  memory.reply_ = memory.submit_ + 2 * wire::kSubmitBytes;
  memory.staging_ = memory.reply_ + 2 * wire::kReplyBytes;
  return memory;
}

Status SessionMemory::mapAt(UniqueFd file) {
  constexpr struct {
    size_t offset, bytes;
  } kRuns[] = {{0, kControlBytes},
               {kSubmitOffset, wire::kSubmitBytes},
               {kSubmitOffset, wire::kSubmitBytes},
               {kReplyOffset, wire::kReplyBytes},
               {kReplyOffset, wire::kReplyBytes},
               {kStagingOffset, kStagingBytes}};
  std::byte* at = base_;
  for (const auto& run : kRuns) {
    if (mapOver(at, run.bytes, file.get(), run.offset) == MAP_FAILED) return systemError("cannot map shared memory");
    at += run.bytes;
  }
  file_ = std::move(file);
  return Done{};
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
