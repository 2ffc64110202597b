// SPDX-License-Identifier: Apache-2.0
// Watches whether the process at the other end of a connection still lives, where that is possible.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace millpond {

class ProcessWatch {
 public:
  /// Identifies the space in which pids are valid: this boot of this machine and this pid namespace. Empty if unknown.
  static std::string space();

  ProcessWatch() = default;
  /// Watches that process of this space; does nothing if it cannot be watched, as with pid 0.
  explicit ProcessWatch(int pid);

  /// Becomes readable when the process has ended; -1 if nothing is watched.
  int file() const { return file_.get(); }
  /// Whether it is known to have ended.
  bool ended() const;

 private:
  UniqueFd file_;
};

}  // namespace millpond
