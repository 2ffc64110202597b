// SPDX-License-Identifier: Apache-2.0
// driver-bench LIB calls ROUNDS SECONDS | copies ROUNDS BYTES | first-kernel | memory | captures COUNT | training SECONDS
#include "bench/driver_bench.h"

#include <charconv>
#include <string_view>

namespace {

using namespace millpond::bench;

constexpr char kUsage[] =
    "usage: driver-bench LIB calls ROUNDS SECONDS | copies ROUNDS BYTES | first-kernel | memory | captures COUNT | training SECONDS";

template <typename T>
T number(std::string_view text) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value <= T{0}) fail(kUsage);
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[2] : "";
  Report report;
  if (mode == "calls" && argc == 5)
    measureCalls(Driver(argv[1]), number<int>(argv[3]), number<double>(argv[4]), report);
  else if (mode == "copies" && argc == 5)
    measureCopies(Driver(argv[1]), number<int>(argv[3]), number<size_t>(argv[4]), report);
  else if (mode == "first-kernel" && argc == 3)
    measureFirstKernel(Driver(argv[1]), report);
  else if (mode == "memory" && argc == 3)
    measureMemory(argv[1], report);
  else if (mode == "captures" && argc == 4)
    return soakCaptures(Driver(argv[1]), number<int64_t>(argv[3])), 0;
  else if (mode == "training" && argc == 4)
    return soakTraining(Driver(argv[1]), number<double>(argv[3])), 0;
  else
    fail(kUsage);
  report.print();
  return 0;
}
