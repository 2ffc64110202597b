// SPDX-License-Identifier: Apache-2.0
// Threads that touch pinned memory while devices are at work, and on which that work waits: a touch waits for nothing that could
// wait for it.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

/// More than is compared, so that its pages are traced if client and worker share no memory.
constexpr size_t kWords = 100'000;
constexpr int kRounds = 3;

/// Pinned memory that a kernel has written to since the program last read it.
class Written {
 public:
  Written() {
    context();
    stream_ = stream();
    void* place = nullptr;
    OK(CU(cuMemHostAlloc)(&place, kWords * sizeof(int), CU_MEMHOSTALLOC_DEVICEMAP));
    words_ = static_cast<int*>(place);
    std::memset(words_, 0, kWords * sizeof(int));
  }
  ~Written() {
    OK(CU(cuMemFreeHost)(words_));
    OK(CU(cuStreamDestroy_v2)(stream_));
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  void writeByKernel(int value) {
    CUdeviceptr at = reinterpret_cast<CUdeviceptr>(words_ + kWords / 2);
    void* arguments[] = {&at, &value};
    OK(CU(cuLaunchKernel)(kernel("store"), 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr));
    OK(CU(cuStreamSynchronize)(stream_));
  }
  int touch() const { return std::atomic_ref<int>(words_[kWords / 2]).load(); }
  void set(int value) const { std::atomic_ref<int>(words_[kWords / 2]).store(value); }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(words_); }

 private:
  CUstream stream_ = nullptr;
  int* words_ = nullptr;
};

/// A kernel that runs until the program writes a word of device memory.
class Waiting {
 public:
  explicit Waiting(CUstream in) : in_(in), writer_(stream()), word_(allocate(2 * sizeof(int))) {
    // Before the kernel runs: loading may wait for the device.
    const CUfunction await = kernel("await");
    OK(CU(cuMemsetD32_v2)(word_, 0, 2));
    OK(CU(cuCtxSynchronize)());
    CUdeviceptr seen = word_ + sizeof(int);
    void* arguments[] = {&word_, &seen};
    OK(CU(cuLaunchKernel)(await, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
  }
  void end() {
    OK(CU(cuMemsetD32Async)(word_, 1, 1, writer_));
    OK(CU(cuStreamSynchronize)(in_));
    OK(CU(cuStreamDestroy_v2)(writer_));
    OK(CU(cuMemFree_v2)(word_));
  }

 private:
  CUstream in_, writer_;
  CUdeviceptr word_;
};

}  // namespace

TEST("a kernel runs until the program has touched memory that another one wrote") {
  Written memory;
  CUstream s = stream();
  for (int round = 1; round <= kRounds; ++round) {
    memory.writeByKernel(round);
    Waiting waiting(s);
    CHECK_EQ(memory.touch(), round);
    memory.set(-round);
    waiting.end();
    CHECK_EQ(memory.touch(), -round);
    CHECK_EQ(read(memory.address() + kWords / 2 * sizeof(int), 1)[0], -round);
  }
  OK(CU(cuStreamDestroy_v2)(s));
}

TEST("a function of the program, given to a stream while a touch is under way, waits for it") {
  Written memory;
  CUstream other = stream();
  CUdeviceptr bytes = 0;
  void* place = nullptr;
  OK(CU(cuMemHostAlloc)(&place, kWords, CU_MEMHOSTALLOC_DEVICEMAP));
  OK(CU(cuMemHostGetDevicePointer_v2)(&bytes, place, 0));
  CUstream legacyWaitsFor = stream(CU_STREAM_DEFAULT);
  for (int round = 1; round <= kRounds; ++round) {
    memory.writeByKernel(round);
    Waiting waiting(legacyWaitsFor);
    // A call that lasts as long as the kernel.
    std::thread filler([&] {
      OK(CU(cuCtxSetCurrent)(context()));
      OK(CU(cuMemsetD8_v2)(bytes, 1, kWords));
    });
    struct Touch {
      std::atomic<int> seen{-1};
    } touch;
    std::thread toucher([&] { touch.seen = memory.touch(); });
    // Long enough for both to be in progress, most of the time.
    for (int i = 0; i < 200; ++i) OK(CU(cuStreamQuery)(other));
    OK(CU(cuLaunchHostFunc)(
        other,
        [](void* of) {
          while (static_cast<Touch*>(of)->seen == -1) std::this_thread::yield();
        },
        &touch));
    waiting.end();
    toucher.join();
    filler.join();
    CHECK_EQ(touch.seen.load(), round);
    OK(CU(cuStreamSynchronize)(other));
  }
  OK(CU(cuMemFreeHost)(place));
  OK(CU(cuStreamDestroy_v2)(other));
  OK(CU(cuStreamDestroy_v2)(legacyWaitsFor));
}

TEST("a stream waits for a word that the program writes after a touch") {
  Written memory;
  CUstream s = stream();
  CUdeviceptr word = allocate(sizeof(int));
  CUstream writer = stream();
  for (int round = 1; round <= kRounds; ++round) {
    memory.writeByKernel(round);
    OK(CU(cuMemsetD32_v2)(word, 0, 1));
    OK(CU(cuCtxSynchronize)());
    OK(CU(cuStreamWaitValue32_v2)(s, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_EQ(memory.touch(), round);
    OK(CU(cuMemsetD32Async)(word, 1, 1, writer));
    OK(CU(cuStreamSynchronize)(s));
  }
  OK(CU(cuMemFree_v2)(word));
  for (CUstream each : {s, writer}) OK(CU(cuStreamDestroy_v2)(each));
}

int main(int argc, char** argv) { return run(argc, argv); }
