// SPDX-License-Identifier: Apache-2.0
// Functions of the program in the order of streams.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

struct Seen {
  std::mutex mutex;
  std::vector<int> order;
};
struct Line {
  Seen* seen;
  int number;
};
void note(void* data) {
  auto* line = static_cast<Line*>(data);
  const std::lock_guard lock(line->seen->mutex);
  line->seen->order.push_back(line->number);
}

}  // namespace

TEST("host functions run in the order of their stream, and before a wait for it returns") {
  context();
  Seen seen;
  std::vector<Line> lines;
  for (int i = 0; i < 200; ++i) lines.push_back({&seen, i});
  CUstream s = stream();
  std::vector<int> expected;
  for (Line& line : lines) {
    OK(CU(cuLaunchHostFunc)(s, &note, &line));
    expected.push_back(line.number);
  }
  OK(CU(cuStreamSynchronize)(s));
  CHECK(seen.order == expected);
  OK(CU(cuStreamDestroy_v2)(s));
}

TEST("a stream goes on only when its host function has returned") {
  context();
  CUstream s = stream();
  CUevent behind = event();
  Gate gate;
  gate.close(s);
  OK(CU(cuEventRecord)(behind, s));
  gate.awaitArrival();
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(s));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuEventQuery)(behind));
  gate.open();
  OK(CU(cuStreamSynchronize)(s));
  OK(CU(cuEventQuery)(behind));
}

TEST("other streams go on while one is held up, and calls on them wait for themselves alone") {
  context();
  CUstream held = stream();
  CUstream other = stream();
  const CUdeviceptr memory = allocate(4096);
  Gate gate;
  gate.close(held);
  gate.awaitArrival();
  OK(CU(cuMemsetD32Async)(memory, 7, 16, other));
  OK(CU(cuStreamSynchronize)(other));
  CHECK_EQ(read(memory, 1)[0], 7);
  gate.open();
  OK(CU(cuStreamSynchronize)(held));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("what a stream has copied to pinned memory is there when its host function runs") {
  context();
  CUstream s = stream();
  const CUdeviceptr memory = allocate(1 << 20);
  void* pinned = nullptr;
  OK(CU(cuMemHostAlloc)(&pinned, 1 << 20, 0));
  struct Look {
    const int* at;
    int first, last;
  } look{static_cast<const int*>(pinned), 0, 0};
  for (int round = 1; round <= 20; ++round) {
    OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(round), (1 << 20) / 4, s));
    OK(CU(cuMemcpyDtoHAsync_v2)(pinned, memory, 1 << 20, s));
    OK(CU(cuLaunchHostFunc)(
        s,
        [](void* data) {
          auto* l = static_cast<Look*>(data);
          l->first = l->at[0];
          l->last = l->at[(1 << 18) - 1];
        },
        &look));
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(look.first, round);
    CHECK_EQ(look.last, round);
  }
  OK(CU(cuMemFreeHost)(pinned));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a callback is told its stream and that all is well, and may not call the driver") {
  context();
  CUstream s = stream();
  struct Told {
    CUstream stream = nullptr;
    CUresult status = CUDA_ERROR_UNKNOWN;
    CUresult call = CUDA_SUCCESS;
  } told;
  OK(CU(cuStreamAddCallback)(
      s,
      [](CUstream at, CUresult status, void* data) {
        auto* t = static_cast<Told*>(data);
        t->stream = at;
        t->status = status;
        CUdeviceptr address = 0;
        t->call = CU(cuMemAlloc_v2)(&address, 16);
      },
      &told, 0));
  OK(CU(cuStreamSynchronize)(s));
  CHECK(told.stream == s);
  CHECK_EQ(told.status, CUDA_SUCCESS);
  CHECK_EQ(told.call, CUDA_ERROR_NOT_PERMITTED);
}

TEST("what cannot be a callback is refused") {
  context();
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuLaunchHostFunc)(nullptr, nullptr, nullptr));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamAddCallback)(nullptr, nullptr, nullptr, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamAddCallback)(
                                      nullptr, [](CUstream, CUresult, void*) {}, nullptr, 1));
}

TEST("many threads and streams at once: each stream's functions stay in order") {
  context();
  constexpr int kThreads = 8, kEach = 50;
  std::vector<Seen> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&seen, t] {
      OK(CU(cuCtxSetCurrent)(context()));
      CUstream s = stream();
      std::vector<Line> lines;
      for (int i = 0; i < kEach; ++i) lines.push_back({&seen[static_cast<size_t>(t)], i});
      for (Line& line : lines) OK(CU(cuLaunchHostFunc)(s, &note, &line));
      OK(CU(cuStreamSynchronize)(s));
    });
  for (std::thread& thread : threads) thread.join();
  for (const Seen& each : seen) {
    CHECK_EQ(each.order.size(), size_t{kEach});
    for (int i = 0; i < kEach; ++i) CHECK_EQ(each.order[static_cast<size_t>(i)], i);
  }
}

TEST("a host function may wait for a thread that allocates, launches for the first time and asks") {
  context();
  // Loading would wait for the function.
  CUfunction fill = kernel("fill");
  CUevent first = event(CU_EVENT_DEFAULT), second = event(CU_EVENT_DEFAULT);
  OK(CU(cuEventRecord)(first, nullptr));
  OK(CU(cuEventRecord)(second, nullptr));
  OK(CU(cuCtxSynchronize)());
  CUstream s = stream();
  Gate gate;
  gate.close(s);
  gate.awaitArrival();
  std::thread other([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    const CUdeviceptr memory = allocate(4096);
    size_t free = 0, total = 0;
    OK(CU(cuMemGetInfo_v2)(&free, &total));
    float ms = -1;
    OK(CU(cuEventElapsedTime)(&ms, first, second));
    CHECK(ms >= 0);
    CUstream mine = stream();
    int count = 16, value = 9;
    CUdeviceptr to = memory;
    void* parameters[] = {&to, &count, &value};
    OK(CU(cuLaunchKernel)(fill, 1, 1, 1, 32, 1, 1, 0, mine, parameters, nullptr));
    int seen = 0;
    OK(CU(cuMemcpyDtoHAsync_v2)(&seen, memory, sizeof seen, mine));
    OK(CU(cuStreamSynchronize)(mine));
    CHECK_EQ(seen, 9);
    gate.open();
    OK(CU(cuStreamDestroy_v2)(mine));
    OK(CU(cuMemFree_v2)(memory));
  });
  other.join();
  OK(CU(cuStreamSynchronize)(s));
}

TEST("what a thread asks about memory waits for no stream that was held up after memory was freed") {
  context();
  CUstream s = stream();
  std::vector<CUdeviceptr> asked;
  for (int round = 0; round < 20; ++round) {
    const CUdeviceptr memory = allocate(1 << 20);
    OK(CU(cuMemsetD32Async)(memory, 1, 64, s));
    OK(CU(cuStreamSynchronize)(s));
    OK(CU(cuMemFree_v2)(memory));
    Gate gate;
    gate.close(s);
    std::thread other([&] {
      OK(CU(cuCtxSetCurrent)(context()));
      size_t free = 0, total = 0;
      OK(CU(cuMemGetInfo_v2)(&free, &total));
      asked.push_back(allocate(4096));
      gate.open();
    });
    other.join();
    OK(CU(cuStreamSynchronize)(s));
  }
  for (const CUdeviceptr each : asked) OK(CU(cuMemFree_v2)(each));
}

TEST("more than any buffer holds is copied behind a host function, while other threads go on") {
  context();
  constexpr size_t kWords = size_t{16} << 20;
  std::vector<int> from(kWords);
  for (size_t i = 0; i < kWords; ++i) from[i] = static_cast<int>(i);
  const CUdeviceptr memory = allocate(kWords * sizeof(int));
  const CUdeviceptr own = allocate(64);
  CUstream s = stream();
  Gate gate;
  gate.close(s);
  gate.awaitArrival();
  std::thread other([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    CUstream mine = stream();
    for (int i = 0; i < 20; ++i) {
      OK(CU(cuMemsetD32Async)(own, static_cast<unsigned>(i), 1, mine));
      OK(CU(cuStreamSynchronize)(mine));
    }
    gate.open();
  });
  OK(CU(cuMemcpyHtoDAsync_v2)(memory, from.data(), kWords * sizeof(int), s));
  other.join();
  OK(CU(cuStreamSynchronize)(s));
  CHECK(read(memory, kWords) == from);
  OK(CU(cuMemFree_v2)(own));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("more launches than a card queues wait behind a host function, and other threads continue meanwhile") {
  context();
  constexpr int kLaunches = 5000;
  CUfunction nothing = kernel("nothing"), fill = kernel("fill");
  const CUdeviceptr memory = allocate(64);
  CUstream s = stream();
  Gate gate;
  gate.close(s);
  gate.awaitArrival();
  std::atomic<int> launched{0};
  std::thread other([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    // As far as the launches can get.
    while (launched.load() < 900) std::this_thread::yield();
    CUstream mine = stream();
    for (int i = 0; i < 20; ++i) {
      int count = 16, value = i;
      CUdeviceptr to = memory;
      void* parameters[] = {&to, &count, &value};
      OK(CU(cuLaunchKernel)(fill, 1, 1, 1, 32, 1, 1, 0, mine, parameters, nullptr));
      OK(CU(cuStreamSynchronize)(mine));
    }
    gate.open();
    OK(CU(cuStreamDestroy_v2)(mine));
  });
  for (int i = 0; i < kLaunches; ++i) {
    OK(CU(cuLaunchKernel)(nothing, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
    launched.store(i + 1);
  }
  other.join();
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(read(memory, 1)[0], 19);
  OK(CU(cuMemFree_v2)(memory));
}

TEST("more fills, small copies and graphs than a card queues wait behind a host function that ends by itself") {
  context();
  constexpr size_t kWords = 4096;
  CUstream s = stream();
  const CUdeviceptr memory = allocate(kWords * sizeof(int));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(CU(cuLaunchKernel)(kernel("nothing"), 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
  OK(CU(cuStreamEndCapture)(s, &graph));
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  std::vector<int> from(kWords);
  for (int round = 0; round < 3; ++round) {
    OK(CU(cuLaunchHostFunc)(
        s, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr));
    for (int i = 0; i < 1500; ++i) {
      if (round == 0) OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(i), kWords, s));
      if (round == 1) {
        std::fill(from.begin(), from.end(), i);
        OK(CU(cuMemcpyHtoDAsync_v2)(memory, from.data(), kWords * sizeof(int), s));
      }
      if (round == 2) OK(CU(cuGraphLaunch)(exec, s));
    }
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(read(memory, kWords)[kWords - 1], 1499);
  }
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("many streams take more than one does, behind functions of several") {
  context();
  constexpr int kStreams = 12, kEach = 700;
  CUfunction nothing = kernel("nothing");
  std::vector<CUstream> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(stream());
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < kStreams; ++i) {
      const auto at = static_cast<size_t>(i);
      OK(CU(cuLaunchHostFunc)(
          streams[at], [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr));
      for (int each = 0; each < kEach; ++each)
        OK(CU(cuLaunchKernel)(nothing, 1, 1, 1, 1, 1, 1, 0, streams[at], nullptr, nullptr));
    }
  OK(CU(cuCtxSynchronize)());
  for (CUstream each : streams) OK(CU(cuStreamDestroy_v2)(each));
}

TEST("a thread whose kernel prints into a full pipe holds up no other thread") {
  context();
  // More than fits into a pipe, from all threads together.
  constexpr int kLength = 1000, kThreads = 256;
  std::string text;
  for (int i = 0; i < kLength; ++i) text += "120, ";
  text += "10, 0";
  const std::string image =
      ".version 6.0\n.target sm_50\n.address_size 64\n"
      ".extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 values);\n"
      ".global .align 1 .b8 text[" +
      std::to_string(kLength + 2) + "] = {" + text +
      "};\n"
      ".visible .entry say() {\n.reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n"
      "mov.u64 %rd1, text;\ncvta.global.u64 %rd2, %rd1;\n{\n"
      ".param .b64 format;\nst.param.b64 [format+0], %rd2;\n.param .b64 values;\nst.param.b64 [values+0], 0;\n"
      ".param .b32 result;\ncall.uni (result), vprintf, (format, values);\nld.param.b32 %r1, [result+0];\n}\nret;\n}\n";
  CUmodule module = nullptr;
  CUfunction say = nullptr;
  OK(CU(cuModuleLoadData)(&module, image.c_str()));
  OK(CU(cuModuleGetFunction)(&say, module, "say"));
  const CUdeviceptr memory = allocate(64);
  CUstream mine = stream();
  std::fflush(stdout);
  int pipe[2];
  const int before = ::dup(STDOUT_FILENO);
  CHECK_EQ(::pipe(pipe), 0);
  CHECK(::dup2(pipe[1], STDOUT_FILENO) == STDOUT_FILENO);
  std::atomic<bool> isDone{false};
  std::thread printer([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    CUstream s = stream();
    OK(CU(cuLaunchKernel)(say, 1, 1, 1, kThreads, 1, 1, 0, s, nullptr, nullptr));
    OK(CU(cuStreamSynchronize)(s));
    std::fflush(stdout);
    isDone.store(true);
  });
  // The pipe is full when it no longer accepts data.
  pollfd look{pipe[0], POLLIN, 0};
  CHECK_EQ(::poll(&look, 1, 20'000), 1);
  for (int i = 0; i < 50; ++i) {
    OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(i), 1, mine));
    OK(CU(cuStreamSynchronize)(mine));
    CHECK_EQ(read(memory, 1)[0], i);
  }
  CHECK(!isDone.load());
  std::vector<char> printed(size_t{1} << 20);
  size_t bytes = 0;
  while (bytes < size_t{kThreads} * (kLength + 1))
    bytes += static_cast<size_t>(::read(pipe[0], printed.data(), printed.size()));
  printer.join();
  CHECK(::dup2(before, STDOUT_FILENO) == STDOUT_FILENO);
  for (const int each : {pipe[0], pipe[1], before}) ::close(each);
  OK(CU(cuModuleUnload)(module));
  OK(CU(cuMemFree_v2)(memory));
}

namespace {

/// The kernels of the tests, as passed to the driver.
const std::string& kernelText() {
  static const std::string text = [] {
    std::ifstream file(kernelFile, std::ios::binary);
    CHECK(file.good());
    return std::string{std::istreambuf_iterator<char>(file), {}};
  }();
  return text;
}

void sleepAwhile(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

}  // namespace

// A card's driver waits for the device, and so for the function, inside of each of these (docs/decisions/0030).
TEST("modules are loaded and unloaded, and kernels of libraries first launched, while host functions are pending") {
  context();
  CUstream held = stream();
  CUstream other = stream();
  const CUdeviceptr memory = allocate(3 * sizeof(int));
  const auto store = [&](CUfunction kernel, unsigned index, int value) {
    CUdeviceptr place = memory + index * sizeof(int);
    void* parameters[] = {&place, &value};
    OK(CU(cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, other, parameters, nullptr));
  };
  for (int round = 0; round < 3; ++round) {
    CUlibrary early = nullptr;
    CUkernel ofEarly = nullptr;
    OK(CU(cuLibraryLoadData)(&early, kernelText().c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(CU(cuLibraryGetKernel)(&ofEarly, early, "store"));
    OK(CU(cuLaunchHostFunc)(held, &sleepAwhile, nullptr));
    store(reinterpret_cast<CUfunction>(ofEarly), 0, round + 1);

    OK(CU(cuLaunchHostFunc)(held, &sleepAwhile, nullptr));
    CUmodule module = nullptr;
    CUfunction ofModule = nullptr;
    OK(CU(cuModuleLoadData)(&module, kernelText().c_str()));
    OK(CU(cuModuleGetFunction)(&ofModule, module, "store"));
    OK(CU(cuLaunchHostFunc)(held, &sleepAwhile, nullptr));
    store(ofModule, 1, round + 2);

    CUlibrary late = nullptr;
    CUkernel ofLate = nullptr;
    OK(CU(cuLibraryLoadData)(&late, kernelText().c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(CU(cuLibraryGetKernel)(&ofLate, late, "store"));
    OK(CU(cuLaunchHostFunc)(held, &sleepAwhile, nullptr));
    store(reinterpret_cast<CUfunction>(ofLate), 2, round + 3);
    OK(CU(cuStreamSynchronize)(other));
    OK(CU(cuLaunchHostFunc)(held, &sleepAwhile, nullptr));
    OK(CU(cuLibraryUnload)(early));
    OK(CU(cuLibraryUnload)(late));
    OK(CU(cuModuleUnload)(module));
    OK(CU(cuStreamSynchronize)(held));
    CHECK(read(memory, 3) == (std::vector<int>{round + 1, round + 2, round + 3}));
  }
  OK(CU(cuMemFree_v2)(memory));
}

int main(int argc, char** argv) { return run(argc, argv); }
