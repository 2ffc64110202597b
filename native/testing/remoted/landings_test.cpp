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
