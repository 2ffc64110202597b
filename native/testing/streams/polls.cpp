// SPDX-License-Identifier: Apache-2.0
// Kernels that poll a word of host memory, which the program writes while they run and before it waits for them.
#include <atomic>
#include <functional>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr int kRounds = 20;

struct Waited {
  CUstream stream;
  CUevent event;
};
using Wait = std::function<void(const Waited&)>;

void pollQuery(const std::function<CUresult()>& query) {
  CUresult result = CUDA_ERROR_NOT_READY;
  while ((result = query()) == CUDA_ERROR_NOT_READY) continue;
  OK(result);
}

/// `words`: one that kernels poll, and one for their observations.
void handOver(int* words, const Wait& wait) {
  CUdeviceptr address = 0;
  OK(CU(cuMemHostGetDevicePointer_v2)(&address, words, 0));
  CUdeviceptr seen = address + sizeof(int);
  void* arguments[] = {&address, &seen};
  const Waited on{stream(), event()};
  for (int n = 1; n <= kRounds; ++n) {
    words[0] = words[1] = 0;
    // Is sent to the device with the launch, like everything that the program wrote before.
    OK(CU(cuLaunchKernel)(kernel("await"), 1, 1, 1, 1, 1, 1, 0, on.stream, arguments, nullptr));
    OK(CU(cuEventRecord)(on.event, on.stream));
    std::atomic_ref<int>(words[0]).store(n);
    wait(on);
    CHECK_EQ(words[1], n);
  }
  OK(CU(cuEventDestroy_v2)(on.event));
  OK(CU(cuStreamDestroy_v2)(on.stream));
}

void handOverPinned(const Wait& wait) {
  context();
  int* words = nullptr;
  OK(CU(cuMemHostAlloc)(reinterpret_cast<void**>(&words), 2 * sizeof(int), CU_MEMHOSTALLOC_DEVICEMAP));
  handOver(words, wait);
  OK(CU(cuMemFreeHost)(words));
}

}  // namespace

TEST("a kernel sees what the program wrote before it waits for the stream") {
  handOverPinned([](const Waited& on) { OK(CU(cuStreamSynchronize)(on.stream)); });
}

TEST("so it does before a wait for an event, and before one for the context") {
  handOverPinned([](const Waited& on) { OK(CU(cuEventSynchronize)(on.event)); });
  handOverPinned([](const Waited&) { OK(CU(cuCtxSynchronize)()); });
}

TEST("so it does while the program asks whether the work is done") {
  handOverPinned([](const Waited& on) { pollQuery([&] { return CU(cuStreamQuery)(on.stream); }); });
  handOverPinned([](const Waited& on) { pollQuery([&] { return CU(cuEventQuery)(on.event); }); });
}

TEST("so it does where the program registered the memory") {
  context();
  std::vector<int> own(4096);
  OK(CU(cuMemHostRegister_v2)(own.data(), own.size() * sizeof(int), CU_MEMHOSTREGISTER_DEVICEMAP));
  handOver(own.data() + 1000, [](const Waited& on) { OK(CU(cuEventSynchronize)(on.event)); });
  OK(CU(cuMemHostUnregister)(own.data()));
}

int main(int argc, char** argv) { return run(argc, argv); }
