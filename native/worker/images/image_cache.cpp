// SPDX-License-Identifier: Apache-2.0
#include "worker/images/image_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "base/unique_fd.h"

namespace millpond::worker {
namespace {

constexpr size_t kNameLength = 64;

bool writeAll(int file, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::write(file, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data = data.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool readAll(int file, std::span<std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::read(file, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data = data.subspan(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

StoredImage::~StoredImage() {
  if (place_) ::munmap(place_, mapped_);
}

ImageCache::~ImageCache() { settle(); }

void ImageCache::enter(const std::string& tenant) {
  if (directory_.empty()) return;
  directory_ = tenant.empty() ? "" : directory_ + "/" + tenant;
  // Usually the agent has created it: a worker that runs as a user of its own may not.
  if (!directory_.empty()) ::mkdir(directory_.c_str(), 0700);
}

std::optional<StoredImage> ImageCache::find(const Sha256& hash, uint64_t bytes) const {
  if (directory_.empty()) return std::nullopt;
  const UniqueFd file(::open(path(hash).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) != bytes + 1) return std::nullopt;
  // Other workers can write the file: this checks a copy, whose hash must match its name.
  void* place = ::mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return std::nullopt;
  StoredImage image(place, bytes + 1);
  const std::span<std::byte> whole(static_cast<std::byte*>(place), bytes);
  if (!readAll(file.get(), whole)) return std::nullopt;
  if (sha256(whole) != hash) {
    log(LogLevel::Warn, "an image of %llu bytes in %s is not what its name says; it is not used",
        static_cast<unsigned long long>(bytes), directory_.c_str());
    return std::nullopt;
  }
  // The time of its last use: the least recently used goes first.
  ::futimens(file.get(), nullptr);
  return image;
}

void ImageCache::keep(const Sha256& announced, std::vector<std::byte> image) {
  if (directory_.empty() || image.size() > limitBytes_ / 2) return;
  settle();
  isStoring_.store(true, std::memory_order_relaxed);
  storing_ = std::thread([this, announced, image = std::move(image)]() mutable {
    store(announced, image);
    image = {};
    isStoring_.store(false, std::memory_order_release);
  });
}

void ImageCache::settle() {
  if (storing_.joinable()) storing_.join();
}

void ImageCache::store(const Sha256& announced, std::span<const std::byte> image) const {
  // A session that could store its bytes under another hash would inject its code into other sessions.
  if (sha256(image) != announced) {
    log(LogLevel::Warn, "an image of %zu bytes was announced under another hash than its own; it is not kept",
        image.size());
    return;
  }
  makeRoom(image.size() + 1);
  const std::string final = path(announced);
  const std::string draft = directory_ + "/draft-" + std::to_string(::getpid());
  // A worker that was killed may have left one, possibly under another user.
  ::unlink(draft.c_str());
  const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  constexpr std::byte zero[1] = {};
  // A tenant's claims run as different users. A changed image is not used, because its hash differs.
  if (!file || ::fchmod(file.get(), 0666) != 0 || !writeAll(file.get(), image) || !writeAll(file.get(), zero) ||
      ::rename(draft.c_str(), final.c_str()) != 0) {
    log(LogLevel::Warn, "an image could not be kept in %s: %s", directory_.c_str(), std::strerror(errno));
    ::unlink(draft.c_str());
  }
}

void ImageCache::makeRoom(uint64_t bytes) const {
  struct Kept {
    std::filesystem::file_time_type used;
    uint64_t bytes;
    std::filesystem::path path;
  };
  std::vector<Kept> all;
  uint64_t total = bytes;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, failed)) {
    if (entry.path().filename().string().size() != kNameLength) continue;
    // Another worker may just have removed it.
    const uint64_t size = entry.file_size(failed);
    if (failed) continue;
    const auto used = entry.last_write_time(failed);
    if (failed) continue;
    all.push_back({used, size, entry.path()});
    total += size;
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& each : all) {
    if (total <= limitBytes_) break;
    if (std::filesystem::remove(each.path, failed)) total -= each.bytes;
  }
}

}  // namespace millpond::worker
