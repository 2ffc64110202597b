// SPDX-License-Identifier: Apache-2.0
// Where the system puts what a process maps.
#pragma once

namespace millpond::worker {

/// Begins this program again, once, such that the system puts what it maps by itself at a third of the address space and
/// above: libraries, stacks of threads, and all that a driver reserves. Programs have theirs at the top, and where they
/// register memory for kernels, it has to be free here at the same address. Returns where that is so already, where the
/// system refuses it (a container's filter of system calls may), and under sanitizers, which have places of their own.
void leaveTopToPrograms(char** argv);

}  // namespace millpond::worker
