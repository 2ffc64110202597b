// SPDX-License-Identifier: Apache-2.0
// What a worker gives up before it meets a client: a tenant's kernels, module images and commands reach a closed driver and
// our own parsers in this process, so that it must be worth little to whoever takes it over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/process/file_access.h"

namespace millpond::worker {

/// Changes the user and the group of this process to an id, and gives up all other groups. Only root can.
Status becomeUser(uint32_t user);

/// The files of every worker: system libraries, the driver and its devices, and what lies beside this program. The folders
/// of the session come on top.
FileAccess systemFiles(const std::string& driver);

/// First step, before there is another thread and before the driver is initialised: capabilities, no new privileges, no
/// core dumps, not dumpable (so that processes of the same user can neither trace it nor read its memory and environment), first
/// in line when memory runs out, and the file rules. Returns what this host does not offer, a sentence each; an error is a
/// restriction that the kernel knows and refused.
Result<std::vector<std::string>> contain(const FileAccess& files);

/// Second step, when the driver is warm and the sockets listen: the system call filter.
Status seal();

}  // namespace millpond::worker
