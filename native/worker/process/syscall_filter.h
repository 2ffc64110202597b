// SPDX-License-Identifier: Apache-2.0
// The system calls that a worker may make once it is set up: a seccomp filter over all of its threads.
#pragma once

#include "base/result.h"

namespace millpond::worker {

/// Installs the filter in every thread of this process, for good. Calls of the list below work as before; what code in a
/// taken-over worker would reach for (new programs and processes, network sockets, other processes' memory, kernel
/// interfaces with a history of exploits) fails with EPERM, and any call that is not listed at all with ENOSYS, which the C
/// library and drivers take for an older kernel. Needs no_new_privs.
Status restrictSystemCalls();

}  // namespace millpond::worker
