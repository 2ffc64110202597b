// SPDX-License-Identifier: Apache-2.0
// Runs programs on the driver and compares their results with the oracle's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "testing/model/oracle.h"
#include "testing/model/program.h"

namespace millpond::model {

inline constexpr size_t kMostThreads = 4;

/// The positions of the threads of the running program: the index of the op in program.ops. Read when a program hangs.
extern std::array<std::atomic<size_t>, kMostThreads> progress;
/// The current step outside of the ops, for the same purpose.
extern std::atomic<const char*> stage;

/// Starts the driver and loads the kernels, once in a process. Ends the process with status 2 if that fails.
void startDriver(bool needsPeer);

/// Runs the program. The first difference from the outcome, or a call that fails, ends the process with status 1 and a
/// line on standard output, because other threads might wait forever.
void run(const Program& program, const Outcome& outcome);

}  // namespace millpond::model
