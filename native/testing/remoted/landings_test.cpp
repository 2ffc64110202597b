// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies to pinned memory that need more memory of the worker than their claim has.
#include <cstddef>
#include <cstring>
#include <vector>

#include "testing/remoted.h"

using namespace millpond::testing;

TEST("asynchronous copies to pinned memory do not need the claim's host memory for all of their bytes") {
  constexpr size_t kBytes = size_t{48} << 20;
  constexpr size_t kCopies = 16;
  // The session itself takes 64 MiB of it.
  constexpr uint64_t kClaimBytes = uint64_t{448} << 20;
  const auto program = [] {
    begin();
    CUdeviceptr from = 0;
    OK(CU(cuMemAlloc_v2)(&from, kBytes));
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(CU(cuMemsetD8Async)(from, 7, kBytes, stream));
    void* to = nullptr;
    OK(CU(cuMemHostAlloc)(&to, kBytes * kCopies, 0));
    auto* bytes = static_cast<unsigned char*>(to);
    for (size_t i = 0; i < kCopies; ++i) OK(CU(cuMemcpyDtoHAsync_v2)(bytes + i * kBytes, from, kBytes, stream));
    OK(CU(cuStreamSynchronize)(stream));
    for (size_t i = 0; i < kBytes * kCopies; i += 4096) CHECK_EQ(int{bytes[i]}, 7);
    OK(CU(cuMemFreeHost)(to));
  };
  CHECK_EQ(runProgram(Way::kTcp, program, {}, kClaimBytes), 0);
}

TEST("a synchronous copy from pinned memory returns when what is before it in the stream has ended") {
  everywhere([] {
    begin();
    constexpr size_t kLargeBytes = size_t{16} << 20;
    CUdeviceptr large = 0, memory = 0;
    OK(CU(cuMemAlloc_v2)(&large, kLargeBytes));
    OK(CU(cuMemAlloc_v2)(&memory, 4096));
    void* pinned = nullptr;
    OK(CU(cuMemHostAlloc)(&pinned, 4096, 0));
    CUevent event = nullptr;
    OK(CU(cuEventCreate)(&event, 0));
    CUDA_MEMCPY2D box{};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = pinned;
    box.srcPitch = 256;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = memory;
    box.dstPitch = 512;
    box.WidthInBytes = 128;
    box.Height = 8;
    for (const bool isBox : {false, true}) {
      // They take longer than a round trip to the worker.
      for (int fill = 0; fill < 40; ++fill) OK(CU(cuMemsetD32Async)(large, 7, kLargeBytes / 4, nullptr));
      OK(CU(cuEventRecord)(event, nullptr));
      OK(isBox ? CU(cuMemcpy2D_v2)(&box) : CU(cuMemcpyHtoD_v2)(memory, pinned, 4096));
      OK(CU(cuEventQuery)(event));
    }
  });
}
