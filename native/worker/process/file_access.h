// SPDX-License-Identifier: Apache-2.0
// The files that a worker may open, and that it may open no TCP connection and signal no other process: Landlock, where
// the kernel has it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace millpond::worker {

struct FileAccess {
  std::vector<std::string> read;   ///< trees whose files may be read, mapped and loaded
  std::vector<std::string> write;  ///< trees whose files may be made, changed and removed as well
  /// As `write`, but folders are not listed: what lies there is for those that know its name.
  std::vector<std::string> unlisted;
};

/// Version of the kernel's Landlock interface, 0 where there is none.
int landlockVersion();

/// Restricts this thread, and every thread and process that it starts from now on, for good; call it before there are
/// others. Paths that do not exist are left out. Needs no_new_privs and a `landlockVersion` of 1 or more; network and signals are
/// restricted from 4 and 6.
Status restrictFiles(const FileAccess& access);

}  // namespace millpond::worker
