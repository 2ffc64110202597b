// SPDX-License-Identifier: Apache-2.0
// Drops the rights of a worker before it accepts a client: a tenant's kernels, module images and commands reach a
// closed driver and our own parsers in this process, so a compromised worker must be of little use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/process/file_access.h"

namespace millpond::worker {

/// Changes the user and the group of this process to an id, and drops all other groups. Needs root.
Status becomeUser(uint32_t user);

/// The files of every worker: system libraries, the driver and its devices, and the files beside this program. The
/// session's folders are added.
FileAccess systemFiles(const std::string& driver);

/// First step, before there is another thread and before the driver is initialised: capabilities, no new privileges, no
/// core dumps, not dumpable (so that processes of the same user can neither trace it nor read its memory and
/// environment), the first candidate when the kernel runs out of memory, and the file rules. Returns the protections
/// that this host lacks, a sentence each; an error means a restriction that the kernel supports and refused.
Result<std::vector<std::string>> contain(const FileAccess& files);

/// Second step, when the driver is initialised and the sockets listen: the system call filter.
Status seal();

}  // namespace millpond::worker
