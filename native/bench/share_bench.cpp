// SPDX-License-Identifier: Apache-2.0
// share-bench LIB calibrate ROUNDS | busy ROUNDS SECONDS | graphs ROUNDS SECONDS | requests ROUNDS SECONDS KERNELS PERIOD_US
//             | idle SECONDS
// One tenant of a GPU. Kernels of a fixed length are kept queued, or come as requests that are waited for; each counts
// itself when it ends, in memory of the host that this program only looks at.
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/driver.h"
#include "bench/report.h"

namespace {

using namespace millpond::bench;

constexpr char kUsage[] =
    "usage: share-bench LIB calibrate ROUNDS | busy ROUNDS SECONDS | graphs ROUNDS SECONDS | "
    "requests ROUNDS SECONDS KERNELS PERIOD_US | idle SECONDS";

/// spin(u64 counter, u32 rounds): all blocks loop; at its end the kernel counts itself.
constexpr char kKernels[] = R"(.version 6.4
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 counter, .param .u32 rounds)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<3>;
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x;
again:
  mad.lo.s32 %r2, %r2, 1664525, 1013904223;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %tid.x;
  or.b32 %r5, %r3, %r4;
  setp.ne.u32 %p2, %r5, 0;
  // So that the compiler needs the sum, which never has this value.
  setp.eq.or.u32 %p2, %r2, 77, %p2;
  @%p2 bra done;
  ld.param.u64 %rd1, [counter];
  ld.volatile.global.u32 %r6, [%rd1];
  add.u32 %r6, %r6, 1;
  st.volatile.global.u32 [%rd1], %r6;
  membar.sys;
done:
  ret;
}
)";

/// On every multiprocessor of the largest GPUs.
constexpr unsigned kBlocks = 132;
constexpr unsigned kThreads = 32;
/// The number of kernels that are queued before earlier ones are awaited.
constexpr int kBatch = 32;
constexpr int kGraphKernels = 20;
constexpr auto kLook = std::chrono::milliseconds(5);

template <typename T>
T number(std::string_view text) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value <= T{0}) fail(kUsage);
  return value;
}

class Tenant {
 public:
  Tenant(const char* library, unsigned rounds) : driver_(library), rounds_(rounds) {
    driver_.must(driver_.cuInit(0), "cuInit");
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    driver_.must(driver_.cuDeviceGet(&device, 0), "cuDeviceGet");
    driver_.must(driver_.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    driver_.must(driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    driver_.must(driver_.cuModuleLoadData(&module, kKernels), "cuModuleLoadData");
    driver_.must(driver_.cuModuleGetFunction(&spin_, module, "spin"), "cuModuleGetFunction");
    driver_.must(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUevent& event : events_)
      driver_.must(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    void* memory = nullptr;
    driver_.must(driver_.cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
    count_ = static_cast<std::atomic<uint32_t>*>(memory);
    count_->store(0);
    driver_.must(driver_.cuMemHostGetDevicePointer(&counter_, memory, 0), "cuMemHostGetDevicePointer");
  }

  /// Microseconds of a kernel running beside others.
  void calibrate(Report& report) {
    for (int i = 0; i < kBatch; ++i) launch();
    synchronize();
    for (int round = 0; round < 5; ++round) {
      const int64_t start = now();
      for (int i = 0; i < kBatch; ++i) launch();
      synchronize();
      report.add("kernel_us", microsecondsEach(now() - start, kBatch));
    }
  }

  /// For that long: the time of each check, and how many kernels had ended.
  void keepBusy(double seconds, bool asGraphs, Report& report) {
    CUgraphExec exec = asGraphs ? makeGraph() : nullptr;
    std::atomic<bool> over{false};
    std::thread watcher([&] {
      while (!over.load()) {
        report.add("at_ns", static_cast<double>(now()));
        report.add("count", count_->load());
        std::this_thread::sleep_for(kLook);
      }
    });
    const int64_t until = now() + static_cast<int64_t>(seconds * 1e9);
    for (unsigned turn = 0; now() < until; ++turn) {
      if (asGraphs)
        driver_.must(driver_.cuGraphLaunch(exec, stream_), "cuGraphLaunch");
      else
        for (int i = 0; i < kBatch; ++i) launch();
      driver_.must(driver_.cuEventRecord(events_[turn % 2], stream_), "cuEventRecord");
      driver_.must(driver_.cuEventSynchronize(events_[(turn + 1) % 2]), "cuEventSynchronize");
    }
    over.store(true);
    watcher.join();
  }

  /// Runs `kernels` kernels in every period and waits for them: microseconds of each such request.
  void answerRequests(double seconds, int kernels, int64_t periodUs, Report& report) {
    const int64_t start = now();
    const int64_t until = start + static_cast<int64_t>(seconds * 1e9);
    for (int64_t due = start; due < until; due += periodUs * 1000) {
      if (const int64_t early = due - now(); early > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(early));
      const int64_t begun = now();
      for (int i = 0; i < kernels; ++i) launch();
      synchronize();
      report.add("request_us", microsecondsEach(now() - begun, 1));
    }
  }

 private:
  void launch() {
    void* parameters[] = {&counter_, &rounds_};
    driver_.must(driver_.cuLaunchKernel(spin_, kBlocks, 1, 1, kThreads, 1, 1, 0, stream_, parameters, nullptr),
                 "cuLaunchKernel");
  }
  void synchronize() { driver_.must(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize"); }
  CUgraphExec makeGraph() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    driver_.must(driver_.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    for (int i = 0; i < kGraphKernels; ++i) launch();
    driver_.must(driver_.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    driver_.must(driver_.cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    return exec;
  }

  const Driver driver_;
  unsigned rounds_;
  CUfunction spin_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUevent, 2> events_{};
  std::atomic<uint32_t>* count_ = nullptr;
  CUdeviceptr counter_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 3 ? argv[2] : "";
  Report report;
  if (mode == "idle" && argc == 4) {
    Tenant tenant(argv[1], 1);
    std::this_thread::sleep_for(std::chrono::duration<double>(number<double>(argv[3])));
  } else if (mode == "calibrate" && argc == 4) {
    Tenant(argv[1], number<unsigned>(argv[3])).calibrate(report);
  } else if ((mode == "busy" || mode == "graphs") && argc == 5) {
    Tenant(argv[1], number<unsigned>(argv[3])).keepBusy(number<double>(argv[4]), mode == "graphs", report);
  } else if (mode == "requests" && argc == 7) {
    Tenant(argv[1], number<unsigned>(argv[3]))
        .answerRequests(number<double>(argv[4]), number<int>(argv[5]), number<int64_t>(argv[6]), report);
  } else {
    fail(kUsage);
  }
  report.print();
  std::fflush(stdout);
  // Queued work no longer matters.
  std::_Exit(0);
}
