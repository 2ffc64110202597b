// SPDX-License-Identifier: Apache-2.0
// MILLPOND_SYNC=1 and CUDA_LAUNCH_BLOCKING=1: the call that fails is the one that says so.
#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr char kStoreSeven[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 to) {
  .reg .u32 %r<2>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  mov.u32 %r1, 7;
  st.global.u32 [%p1], %r1;
  ret;
}
)";

/// The calls of each way through Millpond: the software GPU's driver does not know these variables.
void throughMillpond(const char* variable, const char* value, const std::function<void()>& program) {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    const int status = runProgram(way, [&] {
      ::setenv(variable, value, 1);
      OK(CU(cuInit)(0));
      CUcontext context = nullptr;
      OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
      OK(CU(cuCtxSetCurrent)(context));
      program();
    });
    if (status != 0)
      fail(__FILE__, __LINE__, std::string(variable) + ", " + nameOf(way) + ": status " + std::to_string(status));
  }
}

void blocking(const std::function<void()>& program) {
  throughMillpond("MILLPOND_SYNC", "1", program);
  throughMillpond("CUDA_LAUNCH_BLOCKING", "1", program);
}

CUfunction loadStore() {
  CUmodule module = nullptr;
  OK(CU(cuModuleLoadData)(&module, kStoreSeven));
  CUfunction store = nullptr;
  OK(CU(cuModuleGetFunction)(&store, module, "store"));
  return store;
}

CUresult launch(CUfunction store, CUdeviceptr to, CUstream stream = nullptr) {
  void* parameters[] = {&to};
  return CU(cuLaunchKernel)(store, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

constexpr CUdeviceptr kWild = 0x10;

}  // namespace

TEST("a launch that faults says so itself, and every call after it") {
  blocking([] {
    const CUfunction store = loadStore();
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 4096));
    OK(launch(store, memory));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, launch(store, kWild));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuMemsetD8_v2)(memory, 0, 16));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
  });
}

TEST("without them, or with any other value, the launch is as silent as on a card") {
  const auto program = [] {
    const CUfunction store = loadStore();
    OK(launch(store, kWild));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
  };
  throughMillpond("MILLPOND_SYNC", "0", program);
  throughMillpond("CUDA_LAUNCH_BLOCKING", "2", program);
}

TEST("an asynchronous call that the driver refuses later says so itself") {
  throughMillpond("MILLPOND_SYNC", "1", [] {
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    const unsigned word = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoDAsync_v2)(kWild, &word, sizeof word, stream));
    OK(CU(cuStreamSynchronize)(stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD8Async)(kWild, 0, 16, stream));
    OK(CU(cuStreamSynchronize)(stream));
  });
}

TEST("captured work is not waited for, and a launch of the graph is") {
  blocking([] {
    const CUfunction store = loadStore();
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(launch(store, kWild, stream));
    CUgraph graph = nullptr;
    OK(CU(cuStreamEndCapture)(stream, &graph));
    CUgraphExec exec = nullptr;
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuGraphLaunch)(exec, stream));
  });
}

TEST("a stream may wait for what the same thread does next") {
  throughMillpond("MILLPOND_SYNC", "1", [] {
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr word = 0;
    OK(CU(cuMemAlloc_v2)(&word, 4));
    OK(CU(cuMemsetD32_v2)(word, 0, 1));
    OK(CU(cuStreamWaitValue32_v2)(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    CUstream other = nullptr;
    OK(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    OK(CU(cuMemsetD32Async)(word, 1, 1, other));
    OK(CU(cuStreamSynchronize)(stream));
  });
}
