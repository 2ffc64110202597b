// SPDX-License-Identifier: Apache-2.0
// Functions of the program in the order of streams.
#include <atomic>
#include <cstring>
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
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamAddCallback)(nullptr, [](CUstream, CUresult, void*) {}, nullptr, 1));
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

int main(int argc, char** argv) { return run(argc, argv); }
