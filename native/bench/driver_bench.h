// SPDX-License-Identifier: Apache-2.0
// The measurements of driver-bench. Each adds its samples to the report, a sample for each round.
#pragma once

#include <cstdint>

#include "bench/driver.h"
#include "bench/report.h"

namespace millpond::bench {

/// Cost of calls that do not wait, in bursts that fit into the client's buffer; round trips of calls that do;
/// consecutive launches for `sustainedSeconds`.
void measureCalls(const Driver& driver, int rounds, double sustainedSeconds, Report& report);
/// Copies of `bytes` each way, next to memcpy of the same size in this process. Ends the program if bytes are lost.
void measureCopies(const Driver& driver, int rounds, size_t bytes, Report& report);
/// From cuInit to the first result of a kernel, once: a process has only one first time.
void measureFirstKernel(const Driver& driver, Report& report);
/// Memory that the library uses in this process, from before it is loaded to after cuInit and with a context.
void measureMemory(const char* path, Report& report);

/// Captures the given number of graphs of copies, a kernel and a function of the program, and launches some; now and
/// then prints a line on standard output: {"done": …, "residentKiB": …, "ends": …}. Ends the program if a graph
/// computes a wrong result.
void soakCaptures(const Driver& driver, int64_t captures);
/// Steps of copies, launches and a read, for the given time; with the same lines.
void soakTraining(const Driver& driver, double seconds);

}  // namespace millpond::bench
