// SPDX-License-Identifier: Apache-2.0
// Long-running work that regularly reports its progress and its process's memory: leaks of a call show after a million
// calls.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "bench/driver_bench.h"

namespace millpond::bench {
namespace {

constexpr int64_t kReports = 40;
constexpr uint32_t kStepWords = 256;
/// Graphs that are launched; others are only created.
constexpr int64_t kLaunchEach = 8;
constexpr int64_t kStepLaunches = 50;
constexpr size_t kBatchBytes = size_t{1} << 20;

enum class Progress { kGoesOn, kEnds };

void reportProgress(int64_t done, Progress progress) {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long pages = 0, resident = 0;
  if (!file || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) fail("cannot read /proc/self/statm");
  std::fclose(file);
  std::printf("{\"done\":%lld,\"residentKiB\":%ld,\"ends\":%s}\n", static_cast<long long>(done), resident * 4,
              progress == Progress::kEnds ? "true" : "false");
  std::fflush(stdout);
}

/// Memory of the program that a graph uses. The addresses differ between graphs, as in programs that capture each step.
struct Step {
  std::array<uint32_t, kStepWords> from{};
  std::array<uint32_t, kStepWords> to{};
  int64_t calls = 0;
};

void countCall(void* step) { ++static_cast<Step*>(step)->calls; }

}  // namespace

void soakCaptures(const Driver& driver, int64_t captures) {
  driver.must(driver.cuInit(0), "cuInit");
  const Device device(driver);
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  driver.must(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  driver.must(driver.cuMemAlloc(&memory, sizeof(Step::from)), "cuMemAlloc");
  uint32_t value = 0, words = kStepWords;
  void* parameters[] = {&memory, &value, &words};
  // The last ones stay for a moment, so that the next ones have other addresses.
  std::array<std::unique_ptr<Step>, 64> steps;
  for (int64_t done = 0; done < captures; ++done) {
    if (done % std::max<int64_t>(captures / kReports, 1) == 0) reportProgress(done, Progress::kGoesOn);
    std::unique_ptr<Step>& step = steps[static_cast<size_t>(done) % steps.size()];
    step = std::make_unique<Step>();
    step->from.fill(static_cast<uint32_t>(done));
    value = static_cast<uint32_t>(done * 3);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    driver.must(driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    driver.must(driver.cuMemcpyHtoDAsync(memory, step->from.data(), sizeof(step->from), stream), "cuMemcpyHtoDAsync");
    driver.must(driver.cuLaunchHostFunc(stream, countCall, step.get()), "cuLaunchHostFunc");
    driver.must(driver.cuLaunchKernel(device.mark, kStepWords / 32, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr),
                "cuLaunchKernel");
    driver.must(driver.cuMemcpyDtoHAsync(step->to.data(), memory, sizeof(step->to), stream), "cuMemcpyDtoHAsync");
    driver.must(driver.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    if (done % kLaunchEach == 0) {
      driver.must(driver.cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
      driver.must(driver.cuGraphLaunch(exec, stream), "cuGraphLaunch");
      driver.must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
      if (step->calls != 1 || step->to[5] != value + 5)
        fail("graph " + std::to_string(done) + " called its function " + std::to_string(step->calls) +
             " times and left " + std::to_string(step->to[5]) + " where " + std::to_string(value + 5) + " belongs");
      driver.must(driver.cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    }
    driver.must(driver.cuGraphDestroy(graph), "cuGraphDestroy");
  }
  reportProgress(captures, Progress::kEnds);
}

void soakTraining(const Driver& driver, double seconds) {
  driver.must(driver.cuInit(0), "cuInit");
  const Device device(driver);
  CUstream stream = nullptr;
  CUdeviceptr batch = 0, loss = 0;
  void* pinned = nullptr;
  driver.must(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  driver.must(driver.cuMemAlloc(&batch, kBatchBytes), "cuMemAlloc");
  driver.must(driver.cuMemAlloc(&loss, kStepWords * sizeof(uint32_t)), "cuMemAlloc");
  driver.must(driver.cuMemHostAlloc(&pinned, kBatchBytes, 0), "cuMemHostAlloc");
  uint32_t value = 0, words = kStepWords;
  void* parameters[] = {&loss, &value, &words};
  const int64_t begun = now();
  const auto all = static_cast<int64_t>(seconds * 1e9);
  int64_t next = begun, done = 0;
  for (; now() - begun < all; ++done) {
    if (now() >= next) {
      reportProgress(done, Progress::kGoesOn);
      next += all / kReports;
    }
    value = static_cast<uint32_t>(done);
    driver.must(driver.cuMemcpyHtoDAsync(batch, pinned, kBatchBytes, stream), "cuMemcpyHtoDAsync");
    for (int64_t i = 0; i < kStepLaunches; ++i)
      driver.must(driver.cuLaunchKernel(device.mark, kStepWords / 32, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr),
                  "cuLaunchKernel");
    std::array<uint32_t, kStepWords> read{};
    driver.must(driver.cuMemcpyDtoHAsync(pinned, batch, kBatchBytes, stream), "cuMemcpyDtoHAsync");
    driver.must(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    driver.must(driver.cuMemcpyDtoH(read.data(), loss, sizeof(read)), "cuMemcpyDtoH");
    if (read[7] != value + 7) fail("step " + std::to_string(done) + " read " + std::to_string(read[7]));
  }
  reportProgress(done, Progress::kEnds);
}

}  // namespace millpond::bench
