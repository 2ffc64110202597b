// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "bench/report.h"

namespace millpond::bench {

/// Sends `megabytes` MiB over a loopback connection, from one thread to another, and reports the cost per GiB: time,
/// and the processor time of each thread.
void measureLink(bool isEncrypted, size_t megabytes, int rounds, Report& report);

}  // namespace millpond::bench
