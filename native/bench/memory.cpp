// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "bench/driver_bench.h"

namespace millpond::bench {
namespace {

/// This process's share of the memory it has mapped, in KiB.
long proportionalKiB() {
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r");
  if (!file) fail("cannot open /proc/self/smaps_rollup");
  char line[256];
  long kib = -1;
  while (kib < 0 && std::fgets(line, sizeof(line), file))
    if (std::sscanf(line, "Pss: %ld kB", &kib) != 1) kib = -1;
  std::fclose(file);
  if (kib < 0) fail("/proc/self/smaps_rollup has no Pss");
  return kib;
}

}  // namespace

void measureMemory(const char* path, Report& report) {
  proportionalKiB();  // memory that reading itself needs is already allocated when it counts
  const long before = proportionalKiB();
  const Driver driver(path);
  driver.must(driver.cuInit(0), "cuInit");
  const long initialised = proportionalKiB();
  const Device device(driver);
  const long withContext = proportionalKiB();
  report.add("client_memory", static_cast<double>(initialised - before) / 1024.0);
  report.add("client_memory_context", static_cast<double>(withContext - before) / 1024.0);
}

}  // namespace millpond::bench
