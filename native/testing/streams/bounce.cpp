// SPDX-License-Identifier: Apache-2.0
// Memory of the program that streams write and read, without waits of the program: the order of the streams determines
// the result.
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kWords = size_t{64} << 10;
constexpr size_t kBytes = kWords * sizeof(int);
constexpr int kRounds = 40;

/// Two buffers of a device, and one of the program between them.
struct Bounce {
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
  int* between = nullptr;
  CUstream stream = nullptr;

  Bounce() {
    context();
    from = allocate(kBytes);
    to = allocate(kBytes);
    OK(CU(cuMemHostAlloc)(reinterpret_cast<void**>(&between), kBytes, 0));
    stream = millpond::streams::stream();
  }
  ~Bounce() {
    OK(CU(cuStreamSynchronize)(stream));
    OK(CU(cuMemFreeHost)(between));
    OK(CU(cuMemFree_v2)(from));
    OK(CU(cuMemFree_v2)(to));
    OK(CU(cuStreamDestroy_v2)(stream));
  }
  /// A number in every word of `from`; zeros in `to`.
  void begin(int number, CUstream in) const {
    OK(CU(cuMemsetD32Async)(from, static_cast<unsigned>(number), kWords, in));
    OK(CU(cuMemsetD32Async)(to, 0, kWords, in));
  }
  void arrived(int number) const {
    for (const int word : read(to, kWords)) CHECK_EQ(word, number);
  }
};

CUgraphExec graphOf(CUstream s, const std::function<void()>& work) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  work();
  OK(CU(cuStreamEndCapture)(s, &graph));
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  OK(CU(cuGraphDestroy)(graph));
  return exec;
}

}  // namespace

TEST("what a stream copies to pinned memory is what it copies back from there") {
  Bounce b;
  for (int n = 1; n <= kRounds; ++n) {
    b.begin(n, b.stream);
    OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.from, kBytes, b.stream));
    OK(CU(cuMemcpyHtoDAsync_v2)(b.to, b.between, kBytes, b.stream));
    OK(CU(cuStreamSynchronize)(b.stream));
    b.arrived(n);
    CHECK_EQ(b.between[kWords - 1], n);
  }
}

TEST("so does another stream behind an event") {
  Bounce b;
  CUstream other = stream();
  CUevent there = event(), back = event();
  for (int n = 1; n <= kRounds; ++n) {
    b.begin(n, b.stream);
    OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.from, kBytes, b.stream));
    OK(CU(cuEventRecord)(there, b.stream));
    OK(CU(cuStreamWaitEvent)(other, there, 0));
    OK(CU(cuMemcpyAsync)(b.to, reinterpret_cast<CUdeviceptr>(b.between), kBytes, other));
    OK(CU(cuEventRecord)(back, other));
    OK(CU(cuStreamWaitEvent)(b.stream, back, 0));
  }
  OK(CU(cuStreamSynchronize)(b.stream));
  b.arrived(kRounds);
}

TEST("a copy from parts that came at different times, and from what the program wrote itself") {
  Bounce b;
  std::minstd_rand random(1);
  std::vector<int> model(kWords), mine(kWords);
  const CUdeviceptr tail = allocate(kBytes);
  for (int n = 1; n <= kRounds; ++n) {
    for (size_t i = 0; i < kWords; ++i) model[i] = mine[i] = b.between[i] = -n;
    OK(CU(cuMemsetD32Async)(b.from, static_cast<unsigned>(n), kWords, b.stream));
    OK(CU(cuMemsetD32Async)(tail, static_cast<unsigned>(1000 + n), kWords, b.stream));
    for (int copy = 0; copy < 5; ++copy) {
      const size_t first = random() % kWords, count = 1 + random() % (kWords - first);
      const bool isTail = random() % 2 != 0;
      OK(CU(cuMemcpyDtoHAsync_v2)(b.between + first, (isTail ? tail : b.from) + 4 * first, 4 * count, b.stream));
      std::fill_n(model.begin() + static_cast<ptrdiff_t>(first), count, isTail ? 1000 + n : n);
    }
    OK(CU(cuMemcpyHtoDAsync_v2)(b.to, b.between, kBytes, b.stream));
    CHECK(read(b.to, 1).size() == 1);
    OK(CU(cuStreamSynchronize)(b.stream));
    CHECK(read(b.to, kWords) == model);
    CHECK(std::memcmp(b.between, model.data(), kBytes) == 0);
  }
  OK(CU(cuMemFree_v2)(tail));
}

TEST("rows bounce as well") {
  Bounce b;
  constexpr size_t kPitch = 1024, kRows = 64, kWidth = 512;
  for (int n = 1; n <= 10; ++n) {
    b.begin(n, b.stream);
    std::memset(b.between, 0xff, kBytes);
    CUDA_MEMCPY2D rows{};
    rows.WidthInBytes = kWidth;
    rows.Height = kRows;
    rows.srcPitch = rows.dstPitch = kPitch;
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = b.from;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = b.between;
    OK(CU(cuMemcpy2DAsync_v2)(&rows, b.stream));
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = b.between;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = b.to;
    OK(CU(cuMemcpy2DAsync_v2)(&rows, b.stream));
    OK(CU(cuStreamSynchronize)(b.stream));
    const std::vector<int> seen = read(b.to, kRows * kPitch / 4);
    for (size_t i = 0; i < seen.size(); ++i) CHECK_EQ(seen[i], i % (kPitch / 4) < kWidth / 4 ? n : 0);
  }
}

TEST("of two copies to the same memory the later one stays, whichever stream it is of") {
  Bounce b;
  CUstream other = stream();
  CUevent first = event();
  for (int n = 1; n <= kRounds; ++n) {
    b.begin(n, b.stream);
    OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.to, kBytes, b.stream));
    OK(CU(cuEventRecord)(first, b.stream));
    OK(CU(cuStreamWaitEvent)(other, first, 0));
    OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.from, kBytes, other));
    if (n % 2) {
      OK(CU(cuStreamSynchronize)(other));
    } else {
      std::vector<int> now(1);
      OK(CU(cuMemcpyDtoH_v2)(b.between + 1, b.from, 4));
      OK(CU(cuStreamSynchronize)(other));
    }
    for (size_t i = 0; i < kWords; ++i) CHECK_EQ(b.between[i], n);
  }
}

TEST("a graph copies to the program's memory and back") {
  Bounce b;
  const CUgraphExec exec = graphOf(b.stream, [&] {
    OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.from, kBytes / 2, b.stream));
    OK(CU(cuMemcpyDtoHAsync_v2)(b.between + kWords / 2, b.from + kBytes / 2, kBytes / 2, b.stream));
    OK(CU(cuMemcpyHtoDAsync_v2)(b.to, b.between, kBytes, b.stream));
  });
  for (int n = 1; n <= kRounds; ++n) {
    b.begin(n, b.stream);
    OK(CU(cuGraphLaunch)(exec, b.stream));
    if (n % 3) continue;
    OK(CU(cuStreamSynchronize)(b.stream));
    b.arrived(n);
    CHECK_EQ(b.between[0], n);
    CHECK_EQ(b.between[kWords - 1], n);
  }
  OK(CU(cuStreamSynchronize)(b.stream));
  OK(CU(cuGraphExecDestroy)(exec));
}

TEST("graphs hand over to each other, to copies and from copies") {
  Bounce b;
  const CUgraphExec out = graphOf(b.stream, [&] { OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.from, kBytes, b.stream)); });
  const CUgraphExec in = graphOf(b.stream, [&] { OK(CU(cuMemcpyHtoDAsync_v2)(b.to, b.between, kBytes, b.stream)); });
  for (int n = 1; n <= 3 * kRounds; ++n) {
    b.begin(n, b.stream);
    if (n % 3 == 0)
      OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.from, kBytes, b.stream));
    else
      OK(CU(cuGraphLaunch)(out, b.stream));
    if (n % 3 == 1)
      OK(CU(cuMemcpyHtoDAsync_v2)(b.to, b.between, kBytes, b.stream));
    else
      OK(CU(cuGraphLaunch)(in, b.stream));
    if (n % 2) continue;
    OK(CU(cuStreamSynchronize)(b.stream));
    b.arrived(n);
    CHECK_EQ(b.between[kWords / 2], n);
  }
  OK(CU(cuStreamSynchronize)(b.stream));
  OK(CU(cuGraphExecDestroy)(out));
  OK(CU(cuGraphExecDestroy)(in));
}

TEST("a host function of a graph changes what the graph has copied, and the graph copies that on") {
  Bounce b;
  const CUgraphExec exec = graphOf(b.stream, [&] {
    OK(CU(cuMemcpyDtoHAsync_v2)(b.between, b.from, kBytes, b.stream));
    OK(CU(cuLaunchHostFunc)(
        b.stream,
        [](void* data) {
          auto* words = static_cast<int*>(data);
          for (size_t i = 0; i < kWords; ++i) words[i] += 1000;
        },
        b.between));
    OK(CU(cuMemcpyHtoDAsync_v2)(b.to, b.between, kBytes, b.stream));
  });
  for (int n = 1; n <= 10; ++n) {
    b.begin(n, b.stream);
    OK(CU(cuGraphLaunch)(exec, b.stream));
    OK(CU(cuStreamSynchronize)(b.stream));
    b.arrived(n + 1000);
    CHECK_EQ(b.between[0], n + 1000);
    CHECK_EQ(b.between[kWords - 1], n + 1000);
  }
  OK(CU(cuGraphExecDestroy)(exec));
}

TEST("what a synchronous copy was made from may be changed when it has returned") {
  // Over a network, small memory is compared and larger memory traced; the last is not accessed by kernels at all.
  for (const size_t bytes : {size_t{4096}, size_t{1} << 20, size_t{0}}) {
    Bounce b;
    auto* words = b.between;
    const size_t count = std::min(bytes ? bytes / sizeof(int) : kWords, kWords);
    void* own = nullptr;
    CUstream other = stream(CU_STREAM_DEFAULT), third = stream();
    const auto use = [&](CUstream in) {
      int n = 1, value = 0;
      CUdeviceptr to = reinterpret_cast<CUdeviceptr>(words);
      void* parameters[] = {&to, &n, &value};
      OK(CU(cuLaunchKernel)(kernel("fill"), 1, 1, 1, 32, 1, 1, 0, in, parameters, nullptr));
      OK(CU(cuStreamSynchronize)(in));
    };
    if (bytes != 0) {
      OK(CU(cuMemHostAlloc)(&own, bytes, 0));
      words = static_cast<int*>(own);
      use(third);
    }
    for (int call = 0; call < 4; ++call) {
      for (size_t i = 0; i < count; ++i) words[i] = call + 1;
      // The copy waits for it: it is given to the default stream.
      OK(CU(cuLaunchHostFunc)(
          other, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr));
      CUDA_MEMCPY2D rows{};
      rows.srcMemoryType = CU_MEMORYTYPE_HOST;
      rows.srcHost = words;
      rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      rows.dstDevice = b.to;
      rows.srcPitch = rows.dstPitch = 64;
      rows.WidthInBytes = 60;
      rows.Height = count * sizeof(int) / 64;
      const auto source = reinterpret_cast<CUdeviceptr>(words);
      if (call == 0) OK(CU(cuMemcpyHtoD_v2)(b.to, words, count * sizeof(int)));
      if (call == 1) OK(CU(cuMemcpy)(b.to, source, count * sizeof(int)));
      if (call == 2) OK(CU(cuMemcpy2D_v2)(&rows));
      if (call == 3) {
        CUDA_MEMCPY3D box{};
        box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        box.srcDevice = source;
        box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        box.dstDevice = b.to;
        box.WidthInBytes = count * sizeof(int);
        box.Height = box.Depth = 1;
        OK(CU(cuMemcpy3D_v2)(&box));
      }
      for (size_t i = 1; i < count; ++i) words[i] = 1000;
      if (bytes != 0) use(third);
      const std::vector<int> there = read(b.to, count);
      for (size_t i = 1; i < count; ++i)
        if (call != 2 || i % 16 != 15) CHECK_EQ(there[i], call + 1);
    }
    OK(CU(cuStreamDestroy_v2)(other));
    OK(CU(cuStreamDestroy_v2)(third));
    if (own) OK(CU(cuMemFreeHost)(own));
  }
}

TEST("rows that are copied behind a function which waits for the thread are copied on") {
  for (const bool isWhole : {true, false}) {
    Bounce b;
    Gate gate;
    constexpr size_t kPitch = 64;
    std::memset(b.between, 0, kBytes);
    b.begin(7, b.stream);
    gate.close(b.stream);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcDevice = b.from;
    rows.dstHost = b.between;
    rows.srcPitch = rows.dstPitch = kPitch;
    rows.WidthInBytes = isWhole ? kPitch : kPitch - sizeof(int);
    rows.Height = 4;
    OK(CU(cuMemcpy2DAsync_v2)(&rows, b.stream));
    for (const size_t at : {size_t{0}, 2 * kPitch})
      OK(CU(cuMemcpyHtoDAsync_v2)(b.to + at, b.between + at / sizeof(int), 2 * kPitch, b.stream));
    gate.open();
    OK(CU(cuStreamSynchronize)(b.stream));
    const std::vector<int> words = read(b.to, 4 * kPitch / sizeof(int));
    for (size_t i = 0; i < words.size(); ++i)
      CHECK_EQ(words[i], isWhole || i % (kPitch / sizeof(int)) != kPitch / sizeof(int) - 1 ? 7 : 0);
  }
}

TEST("what is copied to the program's memory arrives while the program does something else") {
  context();
  constexpr size_t kMany = size_t{16} << 20;
  const CUdeviceptr from = allocate(kMany * sizeof(int));
  int* to = nullptr;
  OK(CU(cuMemHostAlloc)(reinterpret_cast<void**>(&to), kMany * sizeof(int), 0));
  CUstream s = stream();
  OK(CU(cuMemsetD32Async)(from, 7, kMany, s));
  OK(CU(cuStreamSynchronize)(s));
  const volatile int* first = to;
  const volatile int* last = to + kMany - 1;
  for (size_t i = 0; i < kMany; ++i) to[i] = 0;
  OK(CU(cuMemcpyDtoHAsync_v2)(to, from, kMany * sizeof(int), s));
  // No call of the driver from now on.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while ((*first != 7 || *last != 7) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  CHECK_EQ(*first, 7);
  CHECK_EQ(*last, 7);
  OK(CU(cuStreamSynchronize)(s));
  OK(CU(cuMemFreeHost)(to));
  OK(CU(cuMemFree_v2)(from));
}

int main(int argc, char** argv) { return run(argc, argv); }
