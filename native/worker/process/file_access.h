// SPDX-License-Identifier: Apache-2.0
// Restricts the files that a worker may open, TCP connections and signals to other processes, with Landlock where the
// kernel has it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace millpond::worker {

struct FileAccess {
  std::vector<std::string> read;   ///< trees whose files may be read, mapped and loaded
  std::vector<std::string> write;  ///< trees whose files may also be created, changed and removed
  /// As `write`, but folders cannot be listed: their files are for processes that know their names.
  std::vector<std::string> unlisted;
};

/// Version of the kernel's Landlock interface; 0 if there is none.
int landlockVersion();

/// Permanently restricts this thread, and every thread and process that it starts from now on; call it before there are
/// others. Paths that do not exist are ignored. Needs no_new_privs and a `landlockVersion` of 1 or more; network and
/// signals are restricted from 4 and 6.
Status restrictFiles(const FileAccess& access);

}  // namespace millpond::worker
