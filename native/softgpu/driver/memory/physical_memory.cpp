// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "softgpu/driver/host/log.h"

namespace millpond::softgpu {

namespace {

/// The name of a store's file ends with the ordinal of its device.
constexpr std::string_view kStoreName = "softgpu-store-";
/// Extents are at multiples of this, so the position in a shared file has room for the length of the extent in such
/// units.
constexpr uint64_t kUnit = uint64_t{2} << 20;

/// The path by which this process reopens one of its own files.
std::string pathOf(int file) { return "/proc/self/fd/" + std::to_string(file); }

/// The device to whose store a file belongs; -1: none.
int storeOrdinal(int file) {
  std::array<char, 64> target{};
  const ssize_t length = ::readlink(pathOf(file).c_str(), target.data(), target.size());
  if (length <= 0) return -1;
  std::string_view name(target.data(), static_cast<size_t>(length));
  const std::string_view head = "/memfd:";
  if (!name.starts_with(head)) return -1;
  name.remove_prefix(head.size());
  if (!name.starts_with(kStoreName)) return -1;
  name.remove_prefix(kStoreName.size());
  int ordinal = -1;
  std::from_chars(name.data(), name.data() + name.size(), ordinal);
  return ordinal;
}

}  // namespace

bool PhysicalStore::open() {
  if (file_) return true;
  file_.reset(::memfd_create((std::string(kStoreName) + std::to_string(device_.ordinal())).c_str(), MFD_CLOEXEC));
  if (file_) return true;
  log(LogLevel::error, std::string("cannot make a memory file: ") + std::strerror(errno));
  return false;
}

std::optional<uint64_t> PhysicalStore::allocate(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!open() || !device_.charge(bytes)) return std::nullopt;
  for (auto extent = free_.begin(); extent != free_.end(); ++extent) {
    if (extent->second < bytes) continue;
    const uint64_t offset = extent->first;
    const uint64_t rest = extent->second - bytes;
    free_.erase(extent);
    if (rest > 0) free_.emplace(offset + bytes, rest);
    return offset;
  }
  const uint64_t offset = size_;
  if (::ftruncate(file_.get(), static_cast<off_t>(size_ + bytes)) != 0) {
    log(LogLevel::error, std::string("cannot grow the memory file: ") + std::strerror(errno));
    device_.release(bytes);
    return std::nullopt;
  }
  size_ += bytes;
  return offset;
}

void PhysicalStore::release(uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  // The pages are returned to the system, and the next owner of the extent finds zeros.
  if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes)) != 0) {
    log(LogLevel::error, std::string("cannot release memory: ") + std::strerror(errno));
  }
  device_.release(bytes);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

PhysicalMemory::~PhysicalMemory() {
  if (!store_) return;
  if (wasShared_)
    store_->abandon(bytes_);
  else
    store_->release(offset_, bytes_);
}

UniqueFd PhysicalMemory::share() {
  // A separate file position needs a separate open file description.
  UniqueFd file(::open(pathOf(fd()).c_str(), O_RDWR | O_CLOEXEC));
  if (file && ::lseek(file.get(), static_cast<off_t>(offset_ | bytes_ / kUnit), SEEK_SET) >= 0) wasShared_ = true;
  return file;
}

std::shared_ptr<PhysicalMemory> PhysicalMemory::open(int file, const std::function<Device*(int)>& device) {
  Device* const home = device(storeOrdinal(file));
  struct stat status {};
  if (!home || ::fstat(file, &status) != 0) return nullptr;
  const off_t position = ::lseek(file, 0, SEEK_CUR);
  if (position < 0) return nullptr;
  const uint64_t offset = static_cast<uint64_t>(position) & ~(kUnit - 1);
  const uint64_t bytes = (static_cast<uint64_t>(position) & (kUnit - 1)) * kUnit;
  const auto size = static_cast<uint64_t>(status.st_size);
  if (bytes == 0 || offset > size || bytes > size - offset) return nullptr;
  UniqueFd own(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (!own) return nullptr;
  return std::make_shared<PhysicalMemory>(std::move(own), *home, offset, bytes);
}

}  // namespace millpond::softgpu
