// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "softgpu/driver/log.h"

namespace millpond::softgpu {

bool PhysicalStore::open() {
  if (file_) return true;
  file_.reset(::memfd_create("softgpu", MFD_CLOEXEC));
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
  // The pages go back to the system, and the next owner of the extent finds zeros.
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

}  // namespace millpond::softgpu
