// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bench/driver_bench.h"

namespace millpond::bench {
namespace {

/// Different at every place, so that a piece that lands elsewhere is detected.
void fillWith(std::byte* bytes, size_t count, uint64_t seed) {
  for (size_t at = 0; at + sizeof(seed) <= count; at += sizeof(seed)) {
    const uint64_t word = (seed + at) * 0x9E3779B97F4A7C15ULL;
    std::memcpy(bytes + at, &word, sizeof(word));
  }
}

}  // namespace

void measureCopies(const Driver& driver, int rounds, size_t bytes, Report& report) {
  driver.must(driver.cuInit(0), "cuInit");
  const Device device(driver);
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
  CUstream stream = nullptr;
  driver.must(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  driver.must(driver.cuMemAlloc(&memory, bytes), "cuMemAlloc");
  driver.must(driver.cuMemHostAlloc(&pinned, bytes, 0), "cuMemHostAlloc");
  std::vector<std::byte> pageable(bytes);
  std::vector<std::byte> other(bytes);

  const auto bytesPerNs = [&](const auto& copy) {
    const int64_t start = now();
    copy();
    return static_cast<double>(bytes) / static_cast<double>(now() - start);  // = GB/s
  };
  // A copy to the device counts as done when the device has the bytes, not when the call has returned.
  const auto toDevice = [&](const void* from) {
    driver.must(driver.cuMemcpyHtoD(memory, from, bytes), "cuMemcpyHtoD");
    driver.must(driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  };
  const auto fromDevice = [&](void* to) { driver.must(driver.cuMemcpyDtoH(to, memory, bytes), "cuMemcpyDtoH"); };

  // In a stream for which the program waits: copies that can overlap then do.
  const auto toDeviceAsync = [&](const void* from) {
    driver.must(driver.cuMemcpyHtoDAsync(memory, from, bytes, stream), "cuMemcpyHtoDAsync");
    driver.must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  };
  const auto fromDeviceAsync = [&](void* to) {
    driver.must(driver.cuMemcpyDtoHAsync(to, memory, bytes, stream), "cuMemcpyDtoHAsync");
    driver.must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  };

  const auto measure = [&](const char* name, const auto& copy, void* host, bool isCounted) {
    // memcpy before and after, because the load of the machine changes from one moment to the next.
    const double before = bytesPerNs([&] { std::memcpy(other.data(), pageable.data(), bytes); });
    const double rate = bytesPerNs([&] { copy(host); });
    const double after = bytesPerNs([&] { std::memcpy(other.data(), pageable.data(), bytes); });
    if (!isCounted) return;
    report.add(std::string(name) + "_rate", rate);
    report.add(std::string(name) + "_ratio", rate / ((before + after) / 2));
    report.add("memcpy_rate", (before + after) / 2);
  };

  for (int round = -1; round < rounds; ++round) {
    const bool isCounted = round >= 0;  // the first round touches every page
    const auto seed = static_cast<uint64_t>(round + 2);
    fillWith(pageable.data(), bytes, seed);
    measure("to_device_pageable", toDevice, pageable.data(), isCounted);
    std::memset(pinned, 0, bytes);
    measure("from_device_pinned", fromDevice, pinned, isCounted);
    if (std::memcmp(pinned, pageable.data(), bytes) != 0) fail("a copy from the device to pinned memory lost bytes");

    fillWith(static_cast<std::byte*>(pinned), bytes, ~seed);
    measure("to_device_pinned", toDevice, pinned, isCounted);
    std::memset(pageable.data(), 0, bytes);
    measure("from_device_pageable", fromDevice, pageable.data(), isCounted);
    if (std::memcmp(pinned, pageable.data(), bytes) != 0) fail("a copy from the device to pageable memory lost bytes");

    fillWith(static_cast<std::byte*>(pinned), bytes, seed * 3);
    std::memcpy(pageable.data(), pinned, bytes);
    measure("to_device_async", toDeviceAsync, pinned, isCounted);
    std::memset(pinned, 0, bytes);
    measure("from_device_async", fromDeviceAsync, pinned, isCounted);
    if (std::memcmp(pinned, pageable.data(), bytes) != 0) fail("asynchronous copies lost bytes");
  }
}

}  // namespace millpond::bench
