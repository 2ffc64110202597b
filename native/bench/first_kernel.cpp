// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>

#include "bench/driver_bench.h"

namespace millpond::bench {

void measureFirstKernel(const Driver& driver, Report& report) {
  const int64_t start = now();
  driver.must(driver.cuInit(0), "cuInit");
  const int64_t initialised = now();
  const Device device(driver);
  CUdeviceptr memory = 0;
  std::array<uint32_t, 64> result{};
  driver.must(driver.cuMemAlloc(&memory, sizeof(result)), "cuMemAlloc");
  uint32_t value = 1000;
  uint32_t count = result.size();
  void* parameters[] = {&memory, &value, &count};
  driver.must(driver.cuLaunchKernel(device.mark, 2, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr), "cuLaunchKernel");
  driver.must(driver.cuMemcpyDtoH(result.data(), memory, sizeof(result)), "cuMemcpyDtoH");
  const int64_t finished = now();
  for (uint32_t i = 0; i < count; ++i)
    if (result[i] != value + i) fail("the kernel's result is wrong");
  report.add("init", static_cast<double>(initialised - start) / 1e6);
  report.add("first_kernel", static_cast<double>(finished - start) / 1e6);
}

}  // namespace millpond::bench
