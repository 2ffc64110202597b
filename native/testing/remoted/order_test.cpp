// SPDX-License-Identifier: Apache-2.0
// One program order: work that threads submit to shared streams runs in submission order, and a thread that waits does
// not keep others from submitting.
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr unsigned kOrderedThreads = 64;
constexpr unsigned kSharedStreams = 8;
constexpr uint64_t kFactor = 6364136223846793005ULL;

/// The number of operations over all threads. The documented figure is a million: MILLPOND_TEST_OPERATIONS=1000000.
unsigned operations() {
  const char* given = std::getenv("MILLPOND_TEST_OPERATIONS");
  return given ? static_cast<unsigned>(std::atoi(given)) : 20'000u;
}

// `step` leaves a value that depends on every step before it, and on their order; then the number of steps. `atLeast`
// increments `misses` if it finds fewer than there must have been.
constexpr char kSteps[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry step(.param .u64 state, .param .u64 number) {
  .reg .u64 %p<5>;
  ld.param.u64 %p1, [state];
  ld.param.u64 %p2, [number];
  ld.global.u64 %p3, [%p1];
  mad.lo.u64 %p3, %p3, 6364136223846793005, %p2;
  st.global.u64 [%p1], %p3;
  ld.global.u64 %p4, [%p1+8];
  add.u64 %p4, %p4, 1;
  st.global.u64 [%p1+8], %p4;
  ret;
}
.visible .entry atLeast(.param .u64 state, .param .u64 count, .param .u64 misses) {
  .reg .u64 %p<5>;
  .reg .u32 %r<2>;
  .reg .pred %q;
  ld.param.u64 %p1, [state];
  ld.param.u64 %p2, [count];
  ld.param.u64 %p3, [misses];
  ld.global.u64 %p4, [%p1+8];
  setp.lo.u64 %q, %p4, %p2;
  @%q atom.global.add.u32 %r1, [%p3], 1;
  ret;
}
)";

/// A stream that threads share, and the work submitted to it.
struct SharedStream {
  std::mutex submitting;
  CUstream stream = nullptr;
  CUdeviceptr state = 0;
  uint64_t value = 0;
  uint64_t steps = 0;
};

struct OrderedProgram {
  CUcontext context = nullptr;
  CUfunction step = nullptr;
  CUfunction atLeast = nullptr;
  CUdeviceptr misses = 0;
  std::array<SharedStream, kSharedStreams> streams;

  OrderedProgram() {
    begin();
    OK(CU(cuCtxGetCurrent)(&context));
    CUmodule module = nullptr;
    OK(CU(cuModuleLoadData)(&module, kSteps));
    OK(CU(cuModuleGetFunction)(&step, module, "step"));
    OK(CU(cuModuleGetFunction)(&atLeast, module, "atLeast"));
    OK(CU(cuMemAlloc_v2)(&misses, 4));
    OK(CU(cuMemsetD32_v2)(misses, 0, 1));
    for (SharedStream& each : streams) {
      OK(CU(cuStreamCreate)(&each.stream, CU_STREAM_NON_BLOCKING));
      OK(CU(cuMemAlloc_v2)(&each.state, 16));
      OK(CU(cuMemsetD32_v2)(each.state, 0, 4));
    }
    OK(CU(cuCtxSynchronize)());
  }
};

/// One of the threads.
class OrderedThread {
 public:
  OrderedThread(OrderedProgram& program, unsigned seed) : program_(program), random_(seed) {
    OK(CU(cuCtxSetCurrent)(program_.context));
    OK(CU(cuEventCreate)(&event_, CU_EVENT_DISABLE_TIMING));
  }

  void act() {
    SharedStream& shared = any();
    switch (random_() % 16) {
      case 0: return see(shared);
      case 1: return waitForOwn(shared);
      case 2: return set(shared);
      case 3: return follow(shared, any());
      case 4: return waitForAll();
      case 5: return lookAround(shared);
      default: return step(shared);
    }
  }

 private:
  SharedStream& any() { return program_.streams[random_() % kSharedStreams]; }

  void submitStep(SharedStream& shared) {
    uint64_t number = random_();
    void* parameters[] = {&shared.state, &number};
    OK(CU(cuLaunchKernel)(program_.step, 1, 1, 1, 1, 1, 1, 0, shared.stream, parameters, nullptr));
    shared.value = shared.value * kFactor + number;
    ++shared.steps;
  }
  void step(SharedStream& shared) {
    const std::lock_guard lock(shared.submitting);
    submitStep(shared);
  }
  /// Everything that was submitted so far, and nothing that comes later.
  void see(SharedStream& shared) {
    std::array<uint64_t, 2> seen{};
    const std::lock_guard lock(shared.submitting);
    OK(CU(cuMemcpyDtoHAsync_v2)(seen.data(), shared.state, sizeof seen, shared.stream));
    OK(CU(cuStreamSynchronize)(shared.stream));
    CHECK_EQ(seen[0], shared.value);
    CHECK_EQ(seen[1], shared.steps);
  }
  /// The thread's own work is complete when its wait returns, while others continue with the same stream.
  void waitForOwn(SharedStream& shared) {
    uint64_t own = 0;
    {
      const std::lock_guard lock(shared.submitting);
      submitStep(shared);
      own = shared.steps;
    }
    OK(CU(cuStreamSynchronize)(shared.stream));
    std::array<uint64_t, 2> seen{};
    OK(CU(cuMemcpyDtoHAsync_v2)(seen.data(), shared.state, sizeof seen, shared.stream));
    OK(CU(cuStreamSynchronize)(shared.stream));
    CHECK(seen[1] >= own);
    const std::lock_guard lock(shared.submitting);
    CHECK(seen[1] <= shared.steps);
  }
  /// A copy from memory that the program may reuse when the call has returned.
  void set(SharedStream& shared) {
    uint64_t value = random_();
    const std::lock_guard lock(shared.submitting);
    shared.value = value;
    OK(CU(cuMemcpyHtoDAsync_v2)(shared.state, &value, sizeof value, shared.stream));
    value = ~value;
  }
  /// Work after an event of another stream finds everything before the event.
  void follow(SharedStream& first, SharedStream& then) {
    uint64_t steps = 0;
    {
      const std::lock_guard lock(first.submitting);
      submitStep(first);
      steps = first.steps;
      OK(CU(cuEventRecord)(event_, first.stream));
    }
    OK(CU(cuStreamWaitEvent)(then.stream, event_, 0));
    void* parameters[] = {&first.state, &steps, &program_.misses};
    OK(CU(cuLaunchKernel)(program_.atLeast, 1, 1, 1, 1, 1, 1, 0, then.stream, parameters, nullptr));
  }
  void waitForAll() {
    // Rare: it waits for the work of all threads.
    if (random_() % 16 == 0) OK(CU(cuCtxSynchronize)());
  }
  void lookAround(SharedStream& shared) {
    const CUresult result = CU(cuStreamQuery)(shared.stream);
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
  }

  OrderedProgram& program_;
  std::minstd_rand random_;
  CUevent event_ = nullptr;
};

}  // namespace

TEST("64 threads that wait and do not wait on streams that they share reorder nothing") {
  everywhere([] {
    OrderedProgram program;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kOrderedThreads; ++t)
      threads.emplace_back([&program, t] {
        OrderedThread thread(program, 20'261'122u + t);
        for (unsigned n = operations() / kOrderedThreads; n; --n) thread.act();
      });
    for (std::thread& thread : threads) thread.join();
    OK(CU(cuCtxSynchronize)());
    unsigned misses = ~0u;
    OK(CU(cuMemcpyDtoH_v2)(&misses, program.misses, sizeof misses));
    CHECK_EQ(misses, 0u);
    for (const SharedStream& shared : program.streams) {
      std::array<uint64_t, 2> seen{};
      OK(CU(cuMemcpyDtoH_v2)(seen.data(), shared.state, sizeof seen));
      CHECK_EQ(seen[0], shared.value);
      CHECK_EQ(seen[1], shared.steps);
    }
  });
}

TEST("while threads wait for what has not come, others submit, wait and are answered") {
  everywhere([] {
    OrderedProgram program;
    CUdeviceptr gate = 0;
    OK(CU(cuMemAlloc_v2)(&gate, 4));
    OK(CU(cuMemsetD32_v2)(gate, 0, 1));
    std::array<CUstream, 4> blocked{};
    for (CUstream& stream : blocked) {
      OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
      OK(CU(cuStreamWaitValue32_v2)(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    }
    std::atomic<unsigned> waiting{0}, open{0};
    std::vector<std::thread> threads;
    for (const CUstream stream : blocked)
      threads.emplace_back([&, stream] {
        OK(CU(cuCtxSetCurrent)(program.context));
        ++waiting;
        OK(CU(cuStreamSynchronize)(stream));
        CHECK_EQ(open.load(), 1u);
      });
    while (waiting.load() < blocked.size()) std::this_thread::yield();
    // If one of these came after one of those, nothing would ever end.
    SharedStream& mine = program.streams[0];
    for (uint64_t n = 0; n < 2'000; ++n) {
      uint64_t number = n;
      void* parameters[] = {&mine.state, &number};
      OK(CU(cuLaunchKernel)(program.step, 1, 1, 1, 1, 1, 1, 0, mine.stream, parameters, nullptr));
      if (n % 20 != 19) continue;
      std::array<uint64_t, 2> seen{};
      OK(CU(cuMemcpyDtoHAsync_v2)(seen.data(), mine.state, sizeof seen, mine.stream));
      OK(CU(cuStreamSynchronize)(mine.stream));
      CHECK_EQ(seen[1], n + 1);
    }
    open = 1;
    OK(CU(cuMemsetD32Async)(gate, 1, 1, mine.stream));
    for (std::thread& thread : threads) thread.join();
  });
}
