// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <cstdio>
#include <cstdlib>

namespace millpond::bench {

void Report::add(const std::string& metric, double sample) {
  for (auto& [name, samples] : metrics_) {
    if (name != metric) continue;
    samples.push_back(sample);
    return;
  }
  metrics_.emplace_back(metric, std::vector<double>{sample});
}

void Report::print() const {
  const char* betweenMetrics = "";
  std::printf("{");
  for (const auto& [name, samples] : metrics_) {
    std::printf("%s\"%s\":", betweenMetrics, name.c_str());
    const char* between = "[";
    for (const double sample : samples) {
      std::printf("%s%.15g", between, sample);
      between = ",";
    }
    std::printf("]");
    betweenMetrics = ",";
  }
  std::printf("}\n");
}

void fail(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::exit(1);
}

}  // namespace millpond::bench
