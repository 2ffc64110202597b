// SPDX-License-Identifier: Apache-2.0
// Words that streams write and wait for, attributes of streams, occupancy, launches of CUDA 3.
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "protocol/handle.h"
#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr char kStore[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 value) {
  .reg .u32 %r<6>;
  .reg .u64 %p<3>;
  ld.param.u64 %p1, [to];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  mul.wide.u32 %p2, %r5, 4;
  add.u64 %p1, %p1, %p2;
  st.global.u32 [%p1], %r1;
  ret;
}
)";

CUstream makeStream() {
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUdeviceptr zeros(size_t bytes) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, bytes));
  OK(CU(cuMemsetD8_v2)(memory, 0, bytes));
  OK(CU(cuCtxSynchronize)());
  return memory;
}

template <typename T>
T read(CUdeviceptr from) {
  T value{};
  OK(CU(cuMemcpyDtoH_v2)(&value, from, sizeof value));
  return value;
}

size_t sharedBytesOf(int size) { return static_cast<size_t>(size) * 16; }

}  // namespace

TEST("the streams of a thread end with it, when they are done") {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    const int status = runProgram(way, [] {
      begin();
      constexpr int kThreads = 60;
      const CUdeviceptr memory = zeros(kThreads);
      CUcontext context = nullptr;
      OK(CU(cuCtxGetCurrent)(&context));
      // The client reuses the handles of objects that have ended.
      const auto nextHandle = [] {
        const CUstream made = makeStream();
        OK(CU(cuStreamDestroy_v2)(made));
        return millpond::handle::index(reinterpret_cast<uint64_t>(made));
      };
      const uint32_t before = nextHandle();
      for (int i = 0; i < kThreads; ++i)
        std::thread([&] {
          OK(CU(cuCtxSetCurrent)(context));
          OK(CU(cuMemsetD8Async)(memory + static_cast<unsigned>(i), 7, 1, CU_STREAM_PER_THREAD));
        }).join();
      CHECK(nextHandle() < before + kThreads / 2);
      OK(CU(cuCtxSynchronize)());
      std::array<uint8_t, kThreads> seen{};
      OK(CU(cuMemcpyDtoH_v2)(seen.data(), memory, seen.size()));
      for (const uint8_t each : seen) CHECK_EQ(each, 7);
      OK(CU(cuMemFree_v2)(memory));
    });
    CHECK_EQ(status, 0);
  }
}

TEST("a stream and the program hand each other words in memory of the host, and what these tell of") {
  everywhere([] {
    begin();
    constexpr size_t kBytes = 8192;
    constexpr unsigned kRounds = 20;
    // At an address at which the worker has nothing of its own, whatever sanitizer both use.
    const auto unmap = [](void* pages) { ::munmap(pages, kBytes); };
    const std::unique_ptr<void, decltype(unmap)> memory(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), unmap);
    CHECK(memory.get() != MAP_FAILED);
    OK(CU(cuMemHostRegister_v2)(memory.get(), kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr device = 0;
    OK(CU(cuMemHostGetDevicePointer_v2)(&device, memory.get(), 0));
    auto* words = static_cast<uint32_t*>(memory.get());
    // The data is before the word on one side and after it on the other.
    const std::atomic_ref<uint32_t> request(words[512]), answer(words[600]);
    uint32_t& question = words[100];
    const uint32_t& reply = words[1000];
    const CUstream stream = makeStream();
    const CUdeviceptr between = zeros(64);
    for (uint32_t i = 1; i <= kRounds; ++i) {
      OK(CU(cuStreamWaitValue32_v2)(stream, device + 4 * 512, i, CU_STREAM_WAIT_VALUE_EQ));
      // Through the device: for a copy between memories of the host a card waits in the call, here for the words below.
      OK(CU(cuMemcpyDtoDAsync_v2)(between, device + 4 * 100, 4, stream));
      OK(CU(cuMemcpyDtoDAsync_v2)(device + 4 * 1000, between, 4, stream));
      OK(CU(cuStreamWriteValue32_v2)(stream, device + 4 * 600, i, CU_STREAM_WRITE_VALUE_DEFAULT));
    }
    for (uint32_t i = 1; i <= kRounds; ++i) {
      question = 1000 + i;
      request.store(i, std::memory_order_release);
      while (answer.load(std::memory_order_acquire) != i) std::this_thread::yield();
      CHECK_EQ(reply, 1000 + i);
    }
    OK(CU(cuStreamSynchronize)(stream));
    OK(CU(cuStreamDestroy_v2)(stream));
    OK(CU(cuMemHostUnregister)(memory.get()));
  });
}

TEST("a stream waits until another one has written the word") {
  everywhere([] {
    begin();
    const CUdeviceptr flag = zeros(64), data = zeros(64);
    const CUstream waiting = makeStream(), writing = makeStream();
    OK(CU(cuStreamWaitValue32_v2)(waiting, flag, 3, CU_STREAM_WAIT_VALUE_GEQ));
    OK(CU(cuMemsetD32Async)(data, 77, 1, waiting));
    FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(waiting));
    OK(CU(cuStreamWriteValue32_v2)(writing, flag, 2, 0));
    OK(CU(cuStreamSynchronize)(writing));
    FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(waiting));
    OK(CU(cuStreamWriteValue32_v2)(writing, flag, 5, 0));
    OK(CU(cuStreamSynchronize)(waiting));
    CHECK_EQ(read<unsigned>(data), 77u);
    CHECK_EQ(read<unsigned>(flag), 5u);
    OK(CU(cuStreamWriteValue64_v2)(writing, flag + 8, 0x1122334455667788, 0));
    OK(CU(cuStreamWaitValue64_v2)(waiting, flag + 8, 0x1122334455667788, CU_STREAM_WAIT_VALUE_EQ));
    OK(CU(cuStreamSynchronize)(waiting));
    CHECK_EQ(read<uint64_t>(flag + 8), uint64_t{0x1122334455667788});
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamWriteValue32_v2)(writing, 0, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamWriteValue32_v2)(writing, flag + 1, 1, 0));
    OK(CU(cuStreamSynchronize)(writing));
  });
}

TEST("several words in one call") {
  everywhere([] {
    begin();
    const CUdeviceptr words = zeros(64);
    const CUstream stream = makeStream();
    CUstreamBatchMemOpParams ops[3] = {};
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = words;
    ops[0].writeValue.value = 11;
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[1].waitValue.address = words;
    ops[1].waitValue.value = 11;
    ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    ops[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    ops[2].writeValue.address = words + 8;
    ops[2].writeValue.value64 = 12;
    OK(CU(cuStreamBatchMemOp_v2)(stream, 3, ops, 0));
    OK(CU(cuStreamSynchronize)(stream));
    CHECK_EQ(read<unsigned>(words), 11u);
    CHECK_EQ(read<uint64_t>(words + 8), uint64_t{12});
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamBatchMemOp_v2)(stream, 1, nullptr, 0));
  });
}

TEST("attributes of streams are kept and copied") {
  everywhere([] {
    begin();
    const CUstream one = makeStream(), two = makeStream();
    CUstreamAttrValue value{}, got{};
    value.syncPolicy = CU_SYNC_POLICY_YIELD;
    OK(CU(cuStreamSetAttribute)(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(CU(cuStreamGetAttribute)(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
    CHECK_EQ(got.syncPolicy, CU_SYNC_POLICY_YIELD);
    OK(CU(cuStreamCopyAttributes)(two, one));
    OK(CU(cuStreamGetAttribute)(two, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
    CHECK_EQ(got.syncPolicy, CU_SYNC_POLICY_YIELD);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamSetAttribute)(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamSetAttribute)(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, nullptr));
  });
}

TEST("the best block size, also where the program says how much shared memory each needs") {
  const auto ask = [](int(&found)[4]) {
    begin();
    CUmodule module = nullptr;
    CUfunction store = nullptr;
    OK(CU(cuModuleLoadData)(&module, kStore));
    OK(CU(cuModuleGetFunction)(&store, module, "store"));
    OK(CU(cuOccupancyMaxPotentialBlockSize)(&found[0], &found[1], store, nullptr, 0, 0));
    OK(CU(cuOccupancyMaxPotentialBlockSizeWithFlags)(&found[2], &found[3], store, &sharedBytesOf, 0, 100, 0));
    CHECK(found[1] > 0 && found[0] > 0 && found[3] <= 100);
  };
  // Only through Millpond: the software GPU's driver does not have these.
  for (const Way way : {Way::kSharedMemory, Way::kTcp})
    CHECK_EQ(runProgram(way,
                        [&] {
                          int found[4] = {};
                          ask(found);
                          FAILS(CUDA_ERROR_INVALID_VALUE,
                                CU(cuOccupancyMaxPotentialBlockSize)(nullptr, &found[1], nullptr, nullptr, 0, 0));
                        }),
             0);
}

TEST("the launches of CUDA 3") {
  for (const Way way : {Way::kSharedMemory, Way::kTcp})
    CHECK_EQ(runProgram(way,
                        [] {
                          begin();
                          CUmodule module = nullptr;
                          CUfunction store = nullptr;
                          OK(CU(cuModuleLoadData)(&module, kStore));
                          OK(CU(cuModuleGetFunction)(&store, module, "store"));
                          const CUdeviceptr memory = zeros(4096);
                          OK(CU(cuFuncSetBlockShape)(store, 32, 1, 1));
                          OK(CU(cuFuncSetSharedSize)(store, 0));
                          CUdeviceptr to = memory;
                          OK(CU(cuParamSetv)(store, 0, &to, sizeof to));
                          OK(CU(cuParamSeti)(store, 8, 9));
                          OK(CU(cuParamSetSize)(store, 12));
                          OK(CU(cuLaunchGrid)(store, 4, 1));
                          CHECK_EQ(read<unsigned>(memory + 127 * 4), 9u);
                          CHECK_EQ(read<unsigned>(memory + 128 * 4), 0u);
                          FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuLaunchGrid)(store, 0, 1));
                          FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLaunch)(nullptr));
                        }),
             0);
}

TEST("managed memory is touched while a function of a stream waits for the thread that touches it") {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    const int status = runProgram(way, [] {
      begin();
      constexpr size_t kBytes = size_t{1} << 20;
      CUdeviceptr touched = 0, written = 0;
      OK(CU(cuMemAllocManaged)(&touched, kBytes, CU_MEM_ATTACH_GLOBAL));
      OK(CU(cuMemAllocManaged)(&written, kBytes, CU_MEM_ATTACH_GLOBAL));
      const CUstream stream = makeStream();
      OK(CU(cuMemsetD8Async)(touched, 3, kBytes, stream));
      OK(CU(cuStreamSynchronize)(stream));
      struct Promise {
        std::atomic<bool> isFulfilled = false, wasFulfilled = false;
      } promise;
      const CUhostFn wait = [](void* data) {
        auto& awaited = *static_cast<Promise*>(data);
        for (int i = 0; i < 2'000 && !awaited.isFulfilled; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        awaited.wasFulfilled = awaited.isFulfilled.load();
      };
      OK(CU(cuLaunchHostFunc)(stream, wait, &promise));
      OK(CU(cuMemsetD8Async)(written, 4, kBytes, stream));
      auto* bytes = reinterpret_cast<volatile uint8_t*>(touched);
      CHECK_EQ(bytes[kBytes / 2], 3);
      bytes[kBytes / 2] = 5;
      promise.isFulfilled = true;
      OK(CU(cuStreamSynchronize)(stream));
      CHECK(promise.wasFulfilled.load());
      CHECK_EQ(reinterpret_cast<volatile uint8_t*>(written)[0], 4);
      CHECK_EQ(read<uint8_t>(touched + kBytes / 2), 5);
      CHECK_EQ(read<uint8_t>(touched + kBytes / 2 + 1), 3);
    });
    CHECK_EQ(status, 0);
  }
}

TEST("a copy of pinned memory behind a wait for a word copies what the program writes until then") {
  everywhere([] {
    begin();
    const CUstream stream = makeStream(), other = makeStream();
    void* memory = nullptr;
    OK(CU(cuMemHostAlloc)(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    auto* hostWord = static_cast<volatile uint32_t*>(memory);
    CUdeviceptr hostWordAt = 0;
    OK(CU(cuMemHostGetDevicePointer_v2)(&hostWordAt, memory, 0));
    const CUdeviceptr deviceWord = zeros(4096);
    *hostWord = 0;
    uint32_t round = 0;
    // Small memory is compared, and large memory traced, if this process and the worker each have their own.
    for (const size_t bytes : {size_t{4096}, size_t{1} << 20}) {
      void* pinned = nullptr;
      OK(CU(cuMemHostAlloc)(&pinned, bytes, 0));
      auto* source = static_cast<volatile uint32_t*>(pinned);
      const CUdeviceptr to = zeros(bytes);
      const size_t last = bytes / sizeof(uint32_t) - 1;
      for (const bool isOfHost : {true, false, true}) {
        ++round;
        source[0] = 1'000 + round;
        source[last] = 1'000 + round;
        OK(CU(cuStreamWaitValue32_v2)(stream, isOfHost ? hostWordAt : deviceWord, round, CU_STREAM_WAIT_VALUE_EQ));
        OK(CU(cuMemcpyHtoDAsync_v2)(to, pinned, bytes, stream));
        source[0] = 2'000 + round;
        source[last] = 2'000 + round;
        if (isOfHost)
          *hostWord = round;
        else
          OK(CU(cuStreamWriteValue32_v2)(other, deviceWord, round, 0));
        OK(CU(cuStreamSynchronize)(stream));
        CHECK_EQ(read<uint32_t>(to), 2'000 + round);
        CHECK_EQ(read<uint32_t>(to + last * sizeof(uint32_t)), 2'000 + round);
      }
    }
  });
}
