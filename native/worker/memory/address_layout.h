// SPDX-License-Identifier: Apache-2.0
// Controls where the system places the mappings of a process.
#pragma once

namespace millpond::worker {

/// Re-executes this program, once, so that the system places its mappings (libraries, stacks of threads, reservations
/// of the driver) from a third of the address space upwards. Programs have theirs at the top, and memory that they
/// register for kernels must be free here at the same address. Returns if this is already so, if the system refuses it
/// (as a container's system call filter may), and under sanitizers, which have a layout of their own.
void leaveTopToPrograms(char** argv);

}  // namespace millpond::worker
