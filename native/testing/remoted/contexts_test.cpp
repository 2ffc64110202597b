// SPDX-License-Identifier: Apache-2.0
// Contexts of one's own: stacks, limits, how they end, and failures that stay in the context in which they happened.
#include <thread>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .entry count()
{
  .reg .u32 %r<3>;
  .reg .u64 %p<2>;
  mov.u64 %p1, counter;
  atom.global.add.u32 %r1, [%p1], 1;
  ret;
}
.visible .entry store(.param .u64 to, .param .u32 value)
{
  .reg .u32 %r<2>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  ld.param.u32 %r1, [value];
  st.global.u32 [%p1], %r1;
  ret;
}
)";

CUcontext current() {
  CUcontext context = nullptr;
  OK(CU(cuCtxGetCurrent)(&context));
  return context;
}

CUcontext create(CUdevice device = 0) {
  CUcontext context = nullptr;
  OK(CU(cuCtxCreate_v2)(&context, 0, device));
  CHECK(current() == context);
  return context;
}

struct Kernels {
  CUmodule module = nullptr;
  CUfunction count = nullptr;
  CUfunction store = nullptr;
  Kernels() {
    OK(CU(cuModuleLoadData)(&module, kKernels));
    OK(CU(cuModuleGetFunction)(&count, module, "count"));
    OK(CU(cuModuleGetFunction)(&store, module, "store"));
  }
  CUresult put(CUdeviceptr to, unsigned value) const {
    void* parameters[] = {&to, &value};
    return CU(cuLaunchKernel)(store, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  }
};

unsigned read(CUdeviceptr from) {
  unsigned value = 0;
  OK(CU(cuMemcpyDtoH_v2)(&value, from, sizeof value));
  return value;
}

void init() { OK(CU(cuInit)(0)); }

}  // namespace

TEST("a context is made current, works, and takes what lives in it with it") {
  everywhere([] {
    init();
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxSynchronize)());
    CUcontext primary = nullptr;
    OK(CU(cuDevicePrimaryCtxRetain)(&primary, 0));
    OK(CU(cuCtxSetCurrent)(primary));
    size_t before = 0, after = 0, total = 0;
    OK(CU(cuMemGetInfo_v2)(&before, &total));
    const CUcontext own = create();
    CHECK(own != primary);
    const Kernels kernels;
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 1 << 20));
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, 0));
    CUevent event = nullptr;
    OK(CU(cuEventCreate)(&event, 0));
    OK(kernels.put(memory, 77));
    OK(CU(cuEventRecord)(event, stream));
    CHECK_EQ(read(memory), 77u);
    CUcontext ofStream = nullptr;
    OK(CU(cuStreamGetCtx)(stream, &ofStream));
    CHECK(ofStream == own);
    OK(CU(cuCtxDestroy_v2)(own));
    CHECK(current() == primary);
    OK(CU(cuMemGetInfo_v2)(&after, &total));
    CHECK_EQ(after, before);
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuStreamSynchronize)(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventQuery)(event));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(memory));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxSetCurrent)(own));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxPushCurrent_v2)(own));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxDestroy_v2)(own));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxDestroy_v2)(primary));
    OK(CU(cuCtxSynchronize)());
  });
}

TEST("a context that another thread destroys is of no more use, but stays current") {
  everywhere([] {
    init();
    const CUcontext own = create();
    std::thread([own] { OK(CU(cuCtxDestroy_v2)(own)); }).join();
    CHECK(current() == own);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuCtxSynchronize)());
    CUdeviceptr memory = 0;
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuMemAlloc_v2)(&memory, 16));
    CUstream stream = nullptr;
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuStreamCreate)(&stream, 0));
    OK(CU(cuCtxPopCurrent_v2)(nullptr));
    CHECK(current() == nullptr);
  });
}

TEST("each thread has a stack of its own, of contexts on several devices") {
  everywhere([] {
    init();
    const CUcontext zero = create(0);
    const CUcontext one = create(1);
    CUdevice device = -1;
    OK(CU(cuCtxGetDevice)(&device));
    CHECK_EQ(device, 1);
    std::thread([one] {
      CHECK(current() == nullptr);
      OK(CU(cuCtxSetCurrent)(one));
      CUdeviceptr memory = 0;
      OK(CU(cuMemAlloc_v2)(&memory, 4096));
      OK(CU(cuMemsetD32_v2)(memory, 5, 1024));
      CHECK_EQ(read(memory), 5u);
    }).join();
    CUcontext popped = nullptr;
    OK(CU(cuCtxPopCurrent_v2)(&popped));
    CHECK(popped == one);
    CHECK(current() == zero);
    OK(CU(cuCtxPushCurrent_v2)(one));
    OK(CU(cuCtxDestroy_v2)(zero));
    CHECK(current() == one);
    OK(CU(cuCtxSynchronize)());
    OK(CU(cuCtxDestroy_v2)(one));
    unsigned long long id = 0;
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuCtxSynchronize)());
    (void)id;
  });
}

TEST("limits and flags are each context's own") {
  everywhere([] {
    init();
    const CUcontext first = create();
    size_t usual = 0, value = 0;
    OK(CU(cuCtxGetLimit)(&usual, CU_LIMIT_PRINTF_FIFO_SIZE));
    OK(CU(cuCtxSetLimit)(CU_LIMIT_PRINTF_FIFO_SIZE, usual * 2));
    OK(CU(cuCtxGetLimit)(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK_EQ(value, usual * 2);
    CUcontext second = nullptr;
    OK(CU(cuCtxCreate_v2)(&second, CU_CTX_SCHED_BLOCKING_SYNC, 0));
    OK(CU(cuCtxGetLimit)(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK_EQ(value, usual);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxGetLimit)(&value, CU_LIMIT_MAX));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxSetLimit)(CU_LIMIT_MAX, 1));
    unsigned flags = 0;
    OK(CU(cuCtxGetFlags)(&flags));
    CHECK_EQ(flags, unsigned{CU_CTX_SCHED_BLOCKING_SYNC});
    OK(CU(cuCtxSetFlags)(CU_CTX_SCHED_YIELD));
    OK(CU(cuCtxGetFlags)(&flags));
    CHECK_EQ(flags, unsigned{CU_CTX_SCHED_YIELD});
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxSetFlags)(CU_CTX_SCHED_YIELD | CU_CTX_SCHED_SPIN));
    OK(CU(cuCtxResetPersistingL2Cache)());
    OK(CU(cuCtxSetCurrent)(first));
    OK(CU(cuCtxGetLimit)(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK_EQ(value, usual * 2);
    CUcontext none = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxCreate_v2)(&none, 0x1000, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuCtxCreate_v2)(&none, 0, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxCreate_v2)(nullptr, 0, 0));
  });
}

TEST("a reset takes back everything, also the limits, and the context begins anew") {
  everywhere([] {
    init();
    CUcontext context = nullptr;
    OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(CU(cuCtxSetCurrent)(context));
    size_t usual = 0, value = 0;
    OK(CU(cuCtxGetLimit)(&usual, CU_LIMIT_MALLOC_HEAP_SIZE));
    OK(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, usual * 2));
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 4096));
    CUevent event = nullptr;
    OK(CU(cuEventCreate)(&event, 0));
    const Kernels kernels;
    OK(CU(cuDevicePrimaryCtxReset_v2)(0));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuCtxSynchronize)());
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuMemFree_v2)(memory));
    CUcontext again = nullptr;
    OK(CU(cuDevicePrimaryCtxRetain)(&again, 0));
    CHECK(again == context);
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventQuery)(event));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(memory));
    FAILS(CUDA_ERROR_INVALID_HANDLE, kernels.put(memory, 1));
    OK(CU(cuCtxGetLimit)(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK_EQ(value, usual);
    OK(CU(cuCtxSynchronize)());
  });
}

TEST("variables of a library have their first values again after a reset, and its kernels work, as copies do") {
  everywhere([] {
    init();
    CUcontext context = nullptr;
    OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(CU(cuCtxSetCurrent)(context));
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadData)(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel count = nullptr;
    OK(CU(cuLibraryGetKernel)(&count, library, "count"));
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 2; ++i)
        OK(CU(cuLaunchKernel)(reinterpret_cast<CUfunction>(count), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
      CUdeviceptr counter = 0;
      size_t bytes = 0;
      OK(CU(cuLibraryGetGlobal)(&counter, &bytes, library, "counter"));
      CHECK_EQ(read(counter), 2u);
      // Larger than copies that need no memory known to the driver.
      CUdeviceptr memory = 0;
      OK(CU(cuMemAlloc_v2)(&memory, 1 << 20));
      std::vector<unsigned> data(1 << 18, static_cast<unsigned>(round)), back(1 << 18);
      OK(CU(cuMemcpyHtoD_v2)(memory, data.data(), 1 << 20));
      OK(CU(cuMemcpyDtoH_v2)(back.data(), memory, 1 << 20));
      CHECK(back == data);
      OK(CU(cuDevicePrimaryCtxReset_v2)(0));
      OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    }
  });
}

TEST("memory that has been freed is neither copied nor filled, until it is allocated again") {
  everywhere([] {
    init();
    create();
    CUdeviceptr memory = 0, live = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 4096));
    OK(CU(cuMemAlloc_v2)(&live, 4096));
    OK(CU(cuMemFree_v2)(memory));
    unsigned word = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoH_v2)(&word, memory, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2)(memory + 64, &word, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoDAsync_v2)(memory, &word, 4, nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoD_v2)(live, memory, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoDAsync_v2)(memory, live, 4, nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD32_v2)(memory, 1, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(memory));
    OK(CU(cuMemsetD32_v2)(live, 7, 1));
    CHECK_EQ(read(live), 7u);
    // A new allocation, even at the same address, is valid like any other.
    std::vector<CUdeviceptr> blocks(64);
    for (CUdeviceptr& block : blocks) {
      OK(CU(cuMemAlloc_v2)(&block, 4096));
      OK(CU(cuMemsetD32_v2)(block, 9, 1));
      CHECK_EQ(read(block), 9u);
    }
    for (const CUdeviceptr block : blocks) OK(CU(cuMemFree_v2)(block));
  });
}

TEST("a failure stays in its context: another one goes on, and destroying the failed one gets rid of it") {
  everywhere([] {
    init();
    const CUcontext good = create();
    const Kernels goodKernels;
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 4096));
    const CUcontext bad = create();
    const Kernels badKernels;
    OK(badKernels.put(0x10, 1));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
    CUstream stream = nullptr;
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuStreamCreate)(&stream, 0));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, badKernels.put(memory, 1));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
    OK(CU(cuCtxSetCurrent)(good));
    OK(goodKernels.put(memory, 42));
    CHECK_EQ(read(memory), 42u);
    OK(CU(cuCtxDestroy_v2)(bad));
    const CUcontext next = create();
    const Kernels nextKernels;
    OK(nextKernels.put(memory, 43));
    CHECK_EQ(read(memory), 43u);
    OK(CU(cuCtxDestroy_v2)(next));
    CHECK(current() == good);
  });
}

TEST("of two contexts whose work fails before the program looks, each tells its failure") {
  everywhere([] {
    init();
    // Not memory of the program: refused at the call, or in the worker.
    constexpr CUdeviceptr kNowhere = 0x1234'5678'0000;
    const CUcontext contexts[] = {create(), create()};
    CUresult told[2];
    for (const int i : {1, 0}) {
      OK(CU(cuCtxSetCurrent)(contexts[i]));
      told[i] = CU(cuMemsetD8Async)(kNowhere, 1, 64, nullptr);
    }
    for (const int i : {0, 1}) {
      OK(CU(cuCtxSetCurrent)(contexts[i]));
      if (told[i] == CUDA_SUCCESS) told[i] = CU(cuStreamSynchronize)(nullptr);
      FAILS(CUDA_ERROR_INVALID_VALUE, told[i]);
      // Once.
      OK(CU(cuStreamSynchronize)(nullptr));
    }
    for (const CUcontext each : contexts) OK(CU(cuCtxDestroy_v2)(each));
  });
}

TEST("managed memory is limited to the claim, as where host and device take turns") {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    const int status = runProgram(way, [] {
      init();
      create();
      int takesNoTurns = 1;
      OK(CU(cuDeviceGetAttribute)(&takesNoTurns, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
      CHECK_EQ(takesNoTurns, 0);
      CUdeviceptr memory = 0;
      FAILS(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAllocManaged)(&memory, size_t{128} << 20, CU_MEM_ATTACH_GLOBAL));
      OK(CU(cuMemAllocManaged)(&memory, size_t{16} << 20, CU_MEM_ATTACH_GLOBAL));
      OK(CU(cuMemFree_v2)(memory));
    });
    CHECK_EQ(status, 0);
  }
}

TEST("a failed primary context works again after a reset") {
  everywhere([] {
    init();
    CUcontext context = nullptr;
    OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(CU(cuCtxSetCurrent)(context));
    {
      const Kernels kernels;
      OK(kernels.put(0x10, 1));
      FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
      FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
    }
    OK(CU(cuDevicePrimaryCtxReset_v2)(0));
    OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    const Kernels kernels;
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 1 << 20));
    OK(kernels.put(memory, 9));
    CHECK_EQ(read(memory), 9u);
    std::vector<unsigned> data(1 << 18, 3);
    OK(CU(cuMemcpyHtoD_v2)(memory, data.data(), data.size() * 4));
    std::vector<unsigned> back(1 << 18);
    OK(CU(cuMemcpyDtoH_v2)(back.data(), memory, back.size() * 4));
    CHECK(back == data);
  });
}

TEST("events of a whole context") {
  everywhere([] {
    init();
    const CUcontext first = create();
    const Kernels kernels;
    CUevent event = nullptr;
    OK(CU(cuEventCreate)(&event, 0));
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 4096));
    OK(CU(cuMemsetD32Async)(memory, 6, 1024, stream));
    OK(CU(cuCtxRecordEvent)(first, event));
    const CUcontext second = create();
    OK(CU(cuCtxWaitEvent)(second, event));
    CUstream later = nullptr;
    OK(CU(cuStreamCreate)(&later, CU_STREAM_NON_BLOCKING));
    unsigned value = 0;
    OK(CU(cuMemcpyDtoHAsync_v2)(&value, memory, 4, later));
    OK(CU(cuStreamSynchronize)(later));
    CHECK_EQ(value, 6u);
    OK(CU(cuEventSynchronize)(event));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxRecordEvent)(nullptr, event));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuCtxRecordEvent)(second, nullptr));
  });
}

TEST("contexts by the hundred, one after the other, and with work left in them") {
  everywhere([] {
    init();
    CUdeviceptr shared = 0;
    const CUcontext home = create();
    OK(CU(cuMemAlloc_v2)(&shared, 1 << 20));
    size_t before = 0, after = 0, total = 0;
    OK(CU(cuMemGetInfo_v2)(&before, &total));
    for (unsigned i = 0; i < 200; ++i) {
      const CUcontext own = create();
      CUstream stream = nullptr;
      OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
      CUdeviceptr memory = 0;
      OK(CU(cuMemAlloc_v2)(&memory, 1 << 20));
      OK(CU(cuMemsetD32Async)(memory, i, 1 << 18, stream));
      OK(CU(cuMemcpyDtoDAsync_v2)(shared, memory, 1 << 20, stream));
      OK(CU(cuCtxDestroy_v2)(own));
      CHECK(current() == home);
    }
    OK(CU(cuMemGetInfo_v2)(&after, &total));
    CHECK_EQ(after, before);
    CHECK_EQ(read(shared), 199u);
  });
}
