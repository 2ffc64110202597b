// SPDX-License-Identifier: Apache-2.0
// Memory that a program has while its session is parked: pinned memory that it shares with its workers, and pools from which
// nothing is allocated.
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
        // Over TCP kernels use a copy of it, and a session with such a copy is not parked.
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
          // Stores by kernels through an address from before the parking are present, and so are the
          // program's writes in between.
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
        // It can end without a GPU, and more memory can be allocated.
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

namespace {

uint64_t poolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  OK(CU(cuMemPoolGetAttribute)(pool, attribute, &value));
  return value;
}

/// Memory from the pool, written and freed.
void usePool(CUmemoryPool pool, size_t bytes, CUstream stream) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAllocFromPoolAsync)(&memory, bytes, pool, stream));
  OK(CU(cuMemsetD8Async)(memory, 7, bytes, stream));
  std::vector<unsigned char> back(bytes);
  OK(CU(cuMemcpyDtoHAsync_v2)(back.data(), memory, bytes, stream));
  OK(CU(cuStreamSynchronize)(stream));
  CHECK(back == std::vector<unsigned char>(bytes, 7));
  OK(CU(cuMemFreeAsync)(memory, stream));
  OK(CU(cuStreamSynchronize)(stream));
}

}  // namespace

TEST(
    "pools from which nothing is allocated are there again, as they were set, also those of a context that has ended") {
  // The software GPU itself has no pools.
  runParkedOverBoth(
      [] {
        begin();
        CUcontext primary = nullptr, own = nullptr;
        OK(CU(cuCtxGetCurrent)(&primary));
        OK(CU(cuCtxCreate_v2)(&own, 0, 1));
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
        CUmemoryPool pool = nullptr, byDefault = nullptr;
        OK(CU(cuMemPoolCreate)(&pool, &properties));
        CUlibrary library = nullptr;
        OK(CU(cuLibraryLoadData)(&library, kStoreWord, nullptr, nullptr, 0, nullptr, nullptr, 0));
        cuuint64_t threshold = UINT64_MAX;
        OK(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
        OK(CU(cuCtxDestroy_v2)(own));
        OK(CU(cuCtxSetCurrent)(primary));
        OK(CU(cuDeviceGetDefaultMemPool)(&byDefault, 0));
        CUcontext second = nullptr;
        OK(CU(cuDevicePrimaryCtxRetain)(&second, 1));
        const auto useBoth = [&] {
          usePool(byDefault, 5 << 20, nullptr);
          OK(CU(cuCtxSetCurrent)(second));
          usePool(pool, 10'000, nullptr);
          OK(CU(cuCtxSetCurrent)(primary));
        };
        useBoth();
        // Retained memory counts as the device's only if part of it is in use.
        const uint64_t reserved = poolAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
        // Not the present amount: the session may have been parked in the meantime, and then it holds nothing.
        CHECK(reserved >= 10'000);
        const uint64_t used = poolAttribute(byDefault, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
        CHECK(used >= 5 << 20);
        for (unsigned round = 0; round < 2; ++round) {
          rest();
          CHECK_EQ(poolAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), UINT64_MAX);
          CHECK_EQ(poolAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), reserved);
          CHECK_EQ(poolAttribute(byDefault, CU_MEMPOOL_ATTR_USED_MEM_HIGH), used);
          CHECK_EQ(poolAttribute(byDefault, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
          useBoth();
        }
        CUkernel kernel = nullptr;
        OK(CU(cuLibraryGetKernel)(&kernel, library, "store"));
        CUdeviceptr memory = 0;
        OK(CU(cuMemAllocAsync)(&memory, 64, nullptr));
        stay([&] { OK(CU(cuMemsetD8Async)(memory, 1, 64, nullptr)); });
        OK(CU(cuMemFreeAsync)(memory, nullptr));
        rest();
        const size_t before = sessionsSoFar();
        OK(CU(cuMemPoolDestroy)(pool));
        CHECK_EQ(sessionsSoFar(), before);
        FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemPoolTrimTo)(pool, 0));
        usePool(byDefault, 100, nullptr);
      },
      4);
}
