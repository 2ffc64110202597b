// SPDX-License-Identifier: Apache-2.0
// Memory that a program has while its session is parked: pinned memory that it shares with its workers.
#include <sys/mman.h>

#include <algorithm>

#include "testing/remoted/parking.h"

using namespace millpond::testing;

namespace {

constexpr size_t kWords = 4096;

unsigned* pinned(size_t words, unsigned flags = 0) {
  void* memory = nullptr;
  OK(CU(cuMemHostAlloc)(&memory, words * sizeof(unsigned), flags));
  return static_cast<unsigned*>(memory);
}

/// Through the device and back to other pinned memory.
void copyThrough(const unsigned* from, unsigned* to, size_t words) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, words * sizeof(unsigned)));
  OK(CU(cuMemcpyHtoDAsync_v2)(memory, from, words * sizeof(unsigned), nullptr));
  OK(CU(cuMemcpyDtoHAsync_v2)(to, memory, words * sizeof(unsigned), nullptr));
  OK(CU(cuStreamSynchronize)(nullptr));
  OK(CU(cuMemFree_v2)(memory));
}

}  // namespace

TEST("pinned memory keeps its address and what is in it, for the program and for kernels") {
  everywhereParked(
      [] {
        begin();
        unsigned* const words = pinned(kWords, CU_MEMHOSTALLOC_DEVICEMAP);
        // Over TCP kernels have a copy of it, and with one a session is not parked.
        const bool isReached = currentWay != Way::kTcp;
        CUdeviceptr onDevice = 0;
        if (isReached) OK(CU(cuMemHostGetDevicePointer_v2)(&onDevice, words, 0));
        unsigned* const others = pinned(3 * kWords);
        for (size_t i = 0; i < kWords; ++i) words[i] = static_cast<unsigned>(i);
        CUmodule module = nullptr;
        OK(CU(cuModuleLoadData)(&module, kStoreWord));
        CUfunction function = nullptr;
        OK(CU(cuModuleGetFunction)(&function, module, "store"));
        for (unsigned round = 1; round <= 3; ++round) {
          copyThrough(words, others + kWords, kWords);
          CHECK(std::equal(words, words + kWords, others + kWords));
          // What kernels store there through an address of before is there, and what the program wrote meanwhile.
          if (isReached) {
            CUdeviceptr to = onDevice + 8 * round;
            unsigned value = 1000 + round;
            void* parameters[] = {&to, &value};
            OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
            OK(CU(cuStreamSynchronize)(nullptr));
            CHECK_EQ(words[2 * round], value);
          }
          rest();
          words[100 + round] = 7 * round;
        }
        unsigned flags = 0;
        OK(CU(cuMemHostGetFlags)(&flags, words));
        CHECK_EQ(flags, static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP));
        // It can end without a GPU, and more can come.
        const size_t before = sessionsSoFar();
        OK(CU(cuMemFreeHost)(words));
        CHECK_EQ(sessionsSoFar(), before);
        unsigned* const more = pinned(kWords);
        std::fill_n(more, kWords, 9u);
        rest();
        copyThrough(more, others, kWords);
        CHECK(std::equal(more, more + kWords, others));
        OK(CU(cuMemFreeHost)(more));
        OK(CU(cuMemFreeHost)(others));
        rest();
        OK(CU(cuCtxSynchronize)());
      },
      5);
}
