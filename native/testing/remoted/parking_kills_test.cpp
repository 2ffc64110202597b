// SPDX-License-Identifier: Apache-2.0
// Workers that are killed while the sessions of a program are parked and continue.
#include <random>

#include "testing/remoted/parking.h"

using namespace millpond::testing;

namespace {

/// Exit status of a program that has lost its device.
constexpr int kLost = 3;

/// Continues only if the device exists; a lost one stays lost.
void mayBeLost(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  CHECK_EQ(result, CUDA_ERROR_DEVICE_UNAVAILABLE);
  FAILS(CUDA_ERROR_DEVICE_UNAVAILABLE, CU(cuCtxSynchronize)());
  ::_exit(kLost);
}

/// Computes with a stream, events and a module that it has had from the start, and pauses for a random time.
void computeAndRest(unsigned seed) {
  std::minstd_rand random(seed);
  begin();
  CUmodule module = nullptr;
  mayBeLost(CU(cuModuleLoadData)(&module, kStoreWord));
  CUfunction function = nullptr;
  mayBeLost(CU(cuModuleGetFunction)(&function, module, "store"));
  CUstream stream = nullptr;
  mayBeLost(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  mayBeLost(CU(cuEventCreate)(&event, CU_EVENT_DEFAULT));
  // Over TCP a client is only occasionally asked whether it agrees.
  const bool isAsked = currentWay == Way::kTcp;
  for (unsigned round = 0; round < (isAsked ? 4 : 12); ++round) {
    CUdeviceptr memory = 0;
    mayBeLost(CU(cuMemAlloc_v2)(&memory, 4));
    void* parameters[] = {&memory, &round};
    mayBeLost(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    mayBeLost(CU(cuEventRecord)(event, stream));
    mayBeLost(CU(cuEventSynchronize)(event));
    unsigned value = ~0u;
    mayBeLost(CU(cuMemcpyDtoH_v2)(&value, memory, 4));
    CHECK_EQ(value, round);
    mayBeLost(CU(cuMemFree_v2)(memory));
    nap(static_cast<long>(random() % (isAsked ? 900'000 : 20'000)));
  }
}

}  // namespace

TEST("a program whose workers are killed at any moment computes what it should, or is told that its device is gone") {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    size_t killed = 0;
    for (unsigned seed = 1; seed <= (way == Way::kTcp ? 3 : 8); ++seed) {
      const Outcome outcome = runParked(
          way, [seed] { computeAndRest(seed); }, seed);
      const bool isWell =
          WIFEXITED(outcome.status) && (WEXITSTATUS(outcome.status) == 0 || WEXITSTATUS(outcome.status) == kLost);
      // Nothing else ends it.
      if (!isWell || (outcome.killed == 0 && WEXITSTATUS(outcome.status) != 0))
        fail(__FILE__, __LINE__, std::string(nameOf(way)) + ", seed " + std::to_string(seed) + ":\n" + outcome.said);
      killed += outcome.killed;
    }
    CHECK(killed > 0);
  }
}
