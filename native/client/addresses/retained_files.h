// SPDX-License-Identifier: Apache-2.0
// The files of the pinned memory that this process shares with its worker, kept for a session that may be parked: its next
// worker maps them, too.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "base/unique_fd.h"

namespace millpond::client {

class RetainedFiles {
 public:
  /// The maximum number: a program may have few descriptors left for its own files.
  static constexpr size_t kMost = 128;

  /// Returns false if there are too many.
  bool keep(uint64_t address, UniqueFd file);
  void drop(uint64_t address);
  /// The descriptor of the file behind the memory at that address; none if it is not kept, or if the program has closed
  /// a descriptor that it did not own.
  std::optional<int> find(uint64_t address) const;

 private:
  struct Kept {
    UniqueFd file;
    dev_t device = 0;
    ino_t inode = 0;

    Kept() = default;
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept();
    bool isThere() const;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Kept> files_;
};

}  // namespace millpond::client
