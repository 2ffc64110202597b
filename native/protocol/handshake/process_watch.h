// SPDX-License-Identifier: Apache-2.0
// Whether a process at the other end of a connection still lives, where that can be known.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace millpond {

class ProcessWatch {
 public:
  /// Where pids mean the same: this boot of this machine and this namespace of processes. Empty where that is unknown.
  static std::string space();

  ProcessWatch() = default;
  /// Watches that process of this space; nothing where it cannot be watched, as with pid 0.
  explicit ProcessWatch(int pid);

  /// Becomes readable when the process has ended; -1 when nothing is watched.
  int file() const { return file_.get(); }
  /// Whether it is known to have ended.
  bool ended() const;

 private:
  UniqueFd file_;
};

}  // namespace millpond
