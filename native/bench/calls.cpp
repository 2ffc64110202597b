// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "bench/driver_bench.h"

namespace millpond::bench {
namespace {

/// Calls in a burst: several times as many as fit into any buffer between program and device.
constexpr int kBurst = 1000;
constexpr int kRoundTrips = 100;
constexpr uint32_t kWords = 256;
constexpr uint32_t kFilled = 7;

}  // namespace

void measureCalls(const Driver& driver, int rounds, double sustainedSeconds, Report& report) {
  driver.must(driver.cuInit(0), "cuInit");
  const Device device(driver);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  driver.must(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  driver.must(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  driver.must(driver.cuMemAlloc(&memory, kWords * sizeof(uint32_t)), "cuMemAlloc");

  uint32_t value = 0;
  uint32_t count = 0;
  void* parameters[] = {&memory, &value, &count};
  const auto launch = [&] {
    return driver.cuLaunchKernel(device.mark, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  };
  const auto record = [&] { return driver.cuEventRecord(event, stream); };
  const auto fill = [&] { return driver.cuMemsetD32Async(memory, kFilled, kWords, stream); };
  const auto synchronize = [&] { driver.must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize"); };

  const auto burst = [&](const auto& call, const char* name) {
    const int64_t start = now();
    CUresult worst = CUDA_SUCCESS;
    for (int i = 0; i < kBurst; ++i)
      if (const CUresult result = call(); result != CUDA_SUCCESS) worst = result;
    const int64_t took = now() - start;
    driver.must(worst, name);
    synchronize();
    return microsecondsEach(took, kBurst);
  };
  const auto roundTrips = [&](const auto& call, const char* name) {
    const int64_t start = now();
    CUresult worst = CUDA_SUCCESS;
    for (int i = 0; i < kRoundTrips; ++i)
      if (const CUresult result = call(); result != CUDA_SUCCESS) worst = result;
    const int64_t took = now() - start;
    driver.must(worst, name);
    return microsecondsEach(took, kRoundTrips);
  };

  for (int round = -1; round < rounds; ++round) {
    const double launchCost = burst(launch, "cuLaunchKernel");
    const double recordCost = burst(record, "cuEventRecord");
    const double fillCost = burst(fill, "cuMemsetD32Async");
    const double synchronizeTrip =
        roundTrips([&] { return driver.cuStreamSynchronize(stream); }, "cuStreamSynchronize");
    const double queryTrip = roundTrips([&] { return driver.cuStreamQuery(stream); }, "cuStreamQuery");
    const double launchTrip = roundTrips(
        [&] {
          const CUresult result = launch();
          return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(stream) : result;
        },
        "cuLaunchKernel, cuStreamSynchronize");
    uint32_t word = 0;
    const double readTrip =
        roundTrips([&] { return driver.cuMemcpyDtoH(&word, memory, sizeof(word)); }, "cuMemcpyDtoH");
    if (word != kFilled) fail("what cuMemsetD32Async wrote is not what cuMemcpyDtoH reads");
    if (round < 0) continue;  // the first round warms caches up
    report.add("launch_call", launchCost);
    report.add("event_record_call", recordCost);
    report.add("memset_call", fillCost);
    report.add("stream_synchronize", synchronizeTrip);
    report.add("stream_query", queryTrip);
    report.add("launch_and_wait", launchTrip);
    report.add("read_word", readTrip);
  }

  int64_t launches = 0;
  const int64_t start = now();
  const auto until = start + static_cast<int64_t>(sustainedSeconds * 1e9);
  while (now() < until) {
    for (int i = 0; i < 100; ++i) driver.must(launch(), "cuLaunchKernel");
    launches += 100;
  }
  const int64_t enqueued = now() - start;
  synchronize();
  const int64_t finished = now() - start;
  report.add("launches_enqueued", static_cast<double>(launches) * 1e9 / static_cast<double>(enqueued));
  report.add("launches_finished", static_cast<double>(launches) * 1e9 / static_cast<double>(finished));
}

}  // namespace millpond::bench
