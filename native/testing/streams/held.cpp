// SPDX-License-Identifier: Apache-2.0
// Copies of pinned and registered memory behind a function of the program that waits for the thread which makes them: no
// call waits, and each copy finds the bytes that are there when its stream comes to it.
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kPage = 4096;

/// Memory of the program that no kernel uses.
class HostMemory {
 public:
  HostMemory(size_t bytes, bool isRegistered) : isRegistered_(isRegistered) {
    context();
    void* memory = nullptr;
    if (isRegistered) {
      memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
      CHECK(memory != nullptr);
    } else {
      OK(CU(cuMemHostAlloc)(&memory, bytes, 0));
    }
    words = static_cast<int*>(memory);
    std::memset(words, 0, bytes);
    if (isRegistered) OK(CU(cuMemHostRegister_v2)(words, bytes, 0));
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() {
    if (!isRegistered_) {
      OK(CU(cuMemFreeHost)(words));
      return;
    }
    OK(CU(cuMemHostUnregister)(words));
    std::free(words);
  }
  int* words = nullptr;

 private:
  bool isRegistered_;
};

struct Case {
  explicit Case(size_t words, bool isRegistered)
      : count(words),
        host(words * sizeof(int), isRegistered),
        from(allocate(bytes())),
        to(allocate(bytes())),
        stream(millpond::streams::stream()) {}
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  ~Case() {
    OK(CU(cuStreamDestroy_v2)(stream));
    OK(CU(cuMemFree_v2)(from));
    OK(CU(cuMemFree_v2)(to));
  }
  size_t bytes() const { return count * sizeof(int); }
  void fill(CUdeviceptr memory, int value) const {
    OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(value), count, stream));
  }
  void fromDevice() const { OK(CU(cuMemcpyDtoHAsync_v2)(host.words, from, bytes(), stream)); }
  void toDevice() const { OK(CU(cuMemcpyHtoDAsync_v2)(to, host.words, bytes(), stream)); }
  void wait() const { OK(CU(cuStreamSynchronize)(stream)); }
  void has(int value) const {
    for (const int word : read(to, count)) CHECK_EQ(word, value);
  }
  void hostHas(int value) const {
    for (size_t i = 0; i < count; ++i) CHECK_EQ(host.words[i], value);
  }
  void write(int value) const {
    for (size_t i = 0; i < count; ++i) host.words[i] = value;
  }

  size_t count;
  HostMemory host;
  CUdeviceptr from, to;
  CUstream stream;
};

/// Once it is mirrored, small memory is compared and large memory traced.
void everywhere(const std::function<void(const Case&)>& test) {
  for (const size_t count : {size_t{1000}, size_t{100'000}})
    for (const bool isRegistered : {false, true}) test(Case(count, isRegistered));
}

}  // namespace

TEST("a copy from a device does not wait for a function that waits for its caller") {
  everywhere([](const Case& all) {
    Gate gate;
    all.fill(all.from, 7);
    gate.close(all.stream);
    all.fromDevice();
    all.hostHas(0);
    gate.open();
    all.wait();
    all.hostHas(7);
  });
}

TEST("a copy to a device reads what the program writes before its stream comes to it") {
  everywhere([](const Case& all) {
    Gate gate;
    all.write(1);
    gate.close(all.stream);
    all.toDevice();
    all.write(2);
    gate.open();
    all.wait();
    all.has(2);
  });
}

TEST("what lands behind such a function is copied on, and so is what another function makes of it") {
  everywhere([](const Case& all) {
    for (const bool isChanged : {false, true}) {
      Gate gate;
      gate.close(all.stream);
      all.fill(all.from, 20);
      all.fromDevice();
      if (isChanged)
        OK(CU(cuLaunchHostFunc)(
            all.stream,
            [](void* data) {
              const auto& each = *static_cast<const Case*>(data);
              for (size_t i = 0; i < each.count; ++i) ++each.host.words[i];
            },
            const_cast<Case*>(&all)));
      all.toDevice();
      gate.open();
      all.wait();
      all.has(isChanged ? 21 : 20);
      all.hostHas(isChanged ? 21 : 20);
    }
  });
}

TEST("rows that lie apart go behind such a function as well") {
  constexpr size_t kRow = 64;
  everywhere([](const Case& all) {
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = all.from;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = all.host.words;
    rows.srcPitch = rows.dstPitch = kRow;
    rows.WidthInBytes = kRow / 2;
    rows.Height = 12;
    Gate gate;
    all.fill(all.from, 5);
    all.fill(all.to, 0);
    gate.close(all.stream);
    OK(CU(cuMemcpy2DAsync_v2)(&rows, all.stream));
    std::swap(rows.srcMemoryType, rows.dstMemoryType);
    rows.srcHost = all.host.words;
    rows.dstDevice = all.to;
    OK(CU(cuMemcpy2DAsync_v2)(&rows, all.stream));
    gate.open();
    all.wait();
    const std::vector<int> words = read(all.to, rows.Height * kRow / sizeof(int));
    for (size_t i = 0; i < words.size(); ++i) CHECK_EQ(words[i], i * sizeof(int) % kRow < kRow / 2 ? 5 : 0);
  });
}

TEST("what lands is there when the program has waited for it in any way, and while it only looks at the memory") {
  everywhere([](const Case& all) {
    const CUevent done = event();
    for (int n = 1; n <= 20; ++n) {
      all.fill(all.from, n);
      all.fromDevice();
      OK(CU(cuEventRecord)(done, all.stream));
      if (n % 2 == 0) {
        OK(CU(cuEventSynchronize)(done));
      } else {
        while (std::atomic_ref(all.host.words[all.count - 1]).load() != n) continue;
        OK(CU(cuEventSynchronize)(done));
      }
      all.hostHas(n);
    }
    OK(CU(cuEventDestroy_v2)(done));
  });
}

TEST("many commands and records with a time behind such a function, which then opens the way, are all done") {
  // Each record takes a place in the queue of its stream: the driver blocks the call that finds none. A wait takes none,
  // and ends the work that a gate measures as one.
  constexpr int kRounds = 2000;
  context();
  const CUstream held = stream();
  const CUdeviceptr memory = allocate(64);
  const CUevent timed = event(CU_EVENT_DEFAULT);
  const CUevent passed = event();
  OK(CU(cuEventRecord)(passed, held));
  for (const bool isRecorded : {false, true}) {
    std::atomic<int> ready = 0;
    Gate gate;
    gate.close(held);
    std::thread filling([&] {
      OK(CU(cuCtxSetCurrent)(context()));
      for (int n = 0; n < kRounds; ++n) {
        OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(n), 16, held));
        OK(CU(cuStreamWaitEvent)(held, passed, 0));
        if (isRecorded) OK(CU(cuEventRecord)(timed, held));
        ready = n + 1;
      }
    });
    gate.awaitArrival();
    // Until the queue is full.
    for (int before = -1; before != ready;) {
      before = ready;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    gate.open();
    filling.join();
    OK(CU(cuStreamSynchronize)(held));
    CHECK_EQ(read(memory, 16)[15], kRounds - 1);
  }
  OK(CU(cuEventDestroy_v2)(timed));
  OK(CU(cuEventDestroy_v2)(passed));
  OK(CU(cuStreamDestroy_v2)(held));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a kernel uses memory to which bytes are copied behind a wait that only the thread ends") {
  for (const bool isWord : {true, false}) {
    context();
    constexpr size_t kCount = 1024;
    constexpr size_t kSize = kCount * sizeof(int);
    Gate gate;
    CUstream s = stream(), other = stream();
    unsigned* word = nullptr;
    int* between = nullptr;
    OK(CU(cuMemHostAlloc)(reinterpret_cast<void**>(&word), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(CU(cuMemHostAlloc)(reinterpret_cast<void**>(&between), kSize, CU_MEMHOSTALLOC_DEVICEMAP));
    *word = 0;
    std::memset(between, 0, kSize);
    const CUdeviceptr from = allocate(kSize), to = allocate(kSize);
    // Calls that load code may wait for the device.
    CUfunction add = kernel("add");
    OK(CU(cuMemsetD32Async)(from, std::bit_cast<unsigned>(1.0F), kCount, s));
    if (isWord)
      OK(CU(cuStreamWaitValue32_v2)(s, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ));
    else
      gate.close(s);
    OK(CU(cuMemcpyDtoHAsync_v2)(between, from, kSize, s));
    CUevent copied = event();
    OK(CU(cuEventRecord)(copied, s));
    OK(CU(cuStreamWaitEvent)(other, copied, 0));
    int count = kCount;
    CUdeviceptr a = reinterpret_cast<CUdeviceptr>(between), b = from, sum = to;
    void* parameters[] = {&a, &b, &sum, &count};
    OK(CU(cuLaunchKernel)(add, kCount / 128, 1, 1, 128, 1, 1, 0, other, parameters, nullptr));
    std::atomic_ref(*word).store(1, std::memory_order_release);
    gate.open();
    OK(CU(cuStreamSynchronize)(other));
    for (const int each : read(to, kCount)) CHECK_EQ(each, std::bit_cast<int>(2.0F));
    OK(CU(cuMemFreeHost)(word));
    OK(CU(cuMemFreeHost)(between));
    for (const CUdeviceptr each : {from, to}) OK(CU(cuMemFree_v2)(each));
    for (CUstream each : {s, other}) OK(CU(cuStreamDestroy_v2)(each));
  }
}

TEST("a kernel uses memory to which bytes are copied while a function of another stream waits for the thread") {
  context();
  constexpr size_t kCount = 1024;
  constexpr size_t kSize = kCount * sizeof(int);
  Gate gate;
  CUstream held = stream(), s = stream();
  void* between = nullptr;
  OK(CU(cuMemHostAlloc)(&between, kSize, CU_MEMHOSTALLOC_DEVICEMAP));
  const CUdeviceptr from = allocate(kSize), to = allocate(kSize);
  CUfunction add = kernel("add");
  OK(CU(cuMemsetD32Async)(from, std::bit_cast<unsigned>(1.0F), kCount, s));
  gate.close(held);
  gate.awaitArrival();
  OK(CU(cuMemcpyDtoHAsync_v2)(between, from, kSize, s));
  int count = kCount;
  CUdeviceptr a = reinterpret_cast<CUdeviceptr>(between), b = from, sum = to;
  void* parameters[] = {&a, &b, &sum, &count};
  OK(CU(cuLaunchKernel)(add, kCount / 128, 1, 1, 128, 1, 1, 0, s, parameters, nullptr));
  OK(CU(cuStreamSynchronize)(s));
  gate.open();
  for (const int each : read(to, kCount)) CHECK_EQ(each, std::bit_cast<int>(2.0F));
  OK(CU(cuMemFreeHost)(between));
  for (const CUdeviceptr each : {from, to}) OK(CU(cuMemFree_v2)(each));
  for (CUstream each : {s, held}) OK(CU(cuStreamDestroy_v2)(each));
}

int main(int argc, char** argv) { return run(argc, argv); }
