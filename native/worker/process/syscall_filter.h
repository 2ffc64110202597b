// SPDX-License-Identifier: Apache-2.0
// The system calls that a worker may make after its initialisation: a seccomp filter over all of its threads.
#pragma once

#include "base/result.h"

namespace millpond::worker {

/// Permanently installs the filter in every thread of this process. Listed calls work as before; calls that an attacker
/// would need (new programs and processes, network sockets, other processes' memory, kernel interfaces with a history
/// of exploits) fail with EPERM, and all unlisted calls with ENOSYS, which the C library and drivers take for an older
/// kernel. Needs no_new_privs.
Status restrictSystemCalls();

}  // namespace millpond::worker
