// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

namespace millpond::bench {

/// Samples by metric, in the order in which the metrics first appeared. bench/src/results/metrics.ts knows their units.
class Report {
 public:
  void add(const std::string& metric, double sample);
  /// One JSON object on standard output: {"metric": [sample, …], …}.
  void print() const;

 private:
  std::vector<std::pair<std::string, std::vector<double>>> metrics_;
};

/// Ends the program with one line on standard error and status 1.
[[noreturn]] void fail(const std::string& message);

/// Nanoseconds of a monotonic clock.
inline int64_t now() {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  return int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

/// Microseconds for each of `count` operations that took `ns` together.
inline double microsecondsEach(int64_t ns, int count) {
  return static_cast<double>(ns) / 1000.0 / static_cast<double>(count);
}

}  // namespace millpond::bench
