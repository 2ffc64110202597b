// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/retained_files.h"

#include <sys/stat.h>

#include <utility>

namespace millpond::client {

RetainedFiles::Kept::~Kept() {
  // Unless the descriptor now belongs to another file.
  if (!isThere()) file.release();
}

bool RetainedFiles::Kept::isThere() const {
  struct stat is {};
  return ::fstat(file.get(), &is) == 0 && is.st_dev == device && is.st_ino == inode;
}

bool RetainedFiles::keep(uint64_t address, UniqueFd file) {
  struct stat is {};
  if (::fstat(file.get(), &is) != 0) return false;
  const std::lock_guard lock(mutex_);
  if (files_.size() >= kMost) return false;
  Kept& kept = files_.try_emplace(address).first->second;
  kept.file = std::move(file);
  kept.device = is.st_dev;
  kept.inode = is.st_ino;
  return true;
}

void RetainedFiles::drop(uint64_t address) {
  const std::lock_guard lock(mutex_);
  files_.erase(address);
}

std::optional<int> RetainedFiles::find(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto kept = files_.find(address);
  if (kept == files_.end() || !kept->second.isThere()) return std::nullopt;
  return kept->second.file.get();
}

}  // namespace millpond::client
