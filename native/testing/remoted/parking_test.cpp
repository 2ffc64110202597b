// SPDX-License-Identifier: Apache-2.0
// A program whose session is parked whenever possible, and continues with another worker at its next call: it behaves
// as on the driver itself. Sessions that hold memory are not parked.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "testing/remoted/parking.h"

using namespace millpond::testing;

namespace {

void useMemory(unsigned value) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, 4096));
  OK(CU(cuMemsetD32_v2)(memory, value, 1024));
  std::vector<unsigned> back(1024);
  OK(CU(cuMemcpyDtoH_v2)(back.data(), memory, 4096));
  CHECK(back == std::vector<unsigned>(1024, value));
  OK(CU(cuMemFree_v2)(memory));
}

void store(CUfunction function, unsigned value) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, 4));
  void* parameters[] = {&memory, &value};
  OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  unsigned result = 0;
  OK(CU(cuMemcpyDtoH_v2)(&result, memory, 4));
  CHECK_EQ(result, value);
  OK(CU(cuMemFree_v2)(memory));
}

constexpr char kCount[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .entry look(.param .u64 .ptr .global .align 4 to) {
  .reg .u32 %r<2>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  ld.global.u32 %r1, [counter];
  st.global.u32 [%p1], %r1;
  ret;
}
.visible .entry count(.param .u64 .ptr .global .align 4 to) {
  .reg .u32 %r<3>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  ld.global.u32 %r1, [counter];
  add.u32 %r2, %r1, 1;
  st.global.u32 [counter], %r2;
  st.global.u32 [%p1], %r2;
  ret;
}
)";

unsigned result(CUfunction function) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, 4));
  void* parameters[] = {&memory};
  OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  unsigned value = 0;
  OK(CU(cuMemcpyDtoH_v2)(&value, memory, 4));
  OK(CU(cuMemFree_v2)(memory));
  return value;
}

/// A stream is captured and launched as a graph, and everything is destroyed; while the graph exists, the session is
/// not parked.
void useGraph() {
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  CUmodule module = nullptr;
  OK(CU(cuModuleLoadData)(&module, kStoreWord));
  CUfunction function = nullptr;
  OK(CU(cuModuleGetFunction)(&function, module, "store"));
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, 4));
  unsigned value = 17;
  void* parameters[] = {&memory, &value};
  OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(stream, &graph));
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  OK(CU(cuGraphLaunch)(exec, stream));
  OK(CU(cuStreamSynchronize)(stream));
  unsigned result = 0;
  OK(CU(cuMemcpyDtoH_v2)(&result, memory, 4));
  CHECK_EQ(result, value);
  OK(CU(cuMemFree_v2)(memory));
  OK(CU(cuGraphDestroy)(graph));
  stay([] { OK(CU(cuCtxSynchronize)()); });
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuModuleUnload)(module));
  OK(CU(cuStreamDestroy_v2)(stream));
}

void launch(unsigned value) {
  CUmodule module = nullptr;
  OK(CU(cuModuleLoadData)(&module, kStoreWord));
  CUfunction function = nullptr;
  OK(CU(cuModuleGetFunction)(&function, module, "store"));
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, 4));
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  OK(CU(cuEventCreate)(&event, CU_EVENT_DEFAULT));
  void* parameters[] = {&memory, &value};
  OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  OK(CU(cuEventRecord)(event, stream));
  OK(CU(cuEventSynchronize)(event));
  unsigned result = 0;
  OK(CU(cuMemcpyDtoH_v2)(&result, memory, 4));
  CHECK_EQ(result, value);
  OK(CU(cuMemFree_v2)(memory));
  OK(CU(cuEventDestroy_v2)(event));
  OK(CU(cuStreamDestroy_v2)(stream));
  OK(CU(cuModuleUnload)(module));
}

}  // namespace

TEST("a program that is parked between its calls sees what it always saw") {
  everywhereParked(
      [] {
        begin();
        size_t free = 0, total = 0;
        OK(CU(cuMemGetInfo_v2)(&free, &total));
        rest();
        for (unsigned value = 1; value <= 2; ++value) {
          useMemory(value);
          rest();
        }
        launch(7);
        rest();
        size_t now = 0, all = 0;
        OK(CU(cuMemGetInfo_v2)(&now, &all));
        CHECK_EQ(now, free);
        CHECK_EQ(all, total);
        rest();
        CUcontext own = nullptr;
        OK(CU(cuCtxCreate_v2)(&own, 0, 1));
        useMemory(3);
        OK(CU(cuCtxDestroy_v2)(own));
        begin();
        rest();
        FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(4096));
        CUmodule module = nullptr;
        CHECK(CU(cuModuleLoadData)(&module, ".version 7.0\nnonsense") != CUDA_SUCCESS);
        rest();
        OK(CU(cuCtxSynchronize)());
        launch(8);
        rest();
        // There is nothing that would have to end, so no GPU is needed for it.
        const size_t before = sessionsSoFar();
        for (int retained = 0; retained < 2; ++retained) OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
        CHECK_EQ(sessionsSoFar(), before);
        begin();
        useMemory(4);
      },
      6);
}

TEST("threads that all call a parked session at once are served by one other") {
  everywhereParked(
      [] {
        begin();
        for (int round = 0; round < 3; ++round) {
          OK(CU(cuCtxSynchronize)());
          rest();
          const size_t before = sessionsSoFar();
          std::atomic<bool> go{false};
          std::atomic<unsigned> there{0};
          std::vector<std::thread> threads;
          for (unsigned t = 0; t < 8; ++t)
            threads.emplace_back([&, t] {
              CUcontext context = nullptr;
              OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
              OK(CU(cuCtxSetCurrent)(context));
              CUdeviceptr memory = 0;
              ++there;
              while (!go) std::this_thread::yield();
              OK(CU(cuMemAlloc_v2)(&memory, 256));
              OK(CU(cuMemsetD8_v2)(memory, static_cast<unsigned char>(t), 256));
              // The last thread to arrive here releases the others, so none of them frees its memory early.
              if (--there == 0) go = false;
              while (go) std::this_thread::yield();
              std::array<unsigned char, 256> back{};
              OK(CU(cuMemcpyDtoH_v2)(back.data(), memory, back.size()));
              for (const unsigned char byte : back) CHECK_EQ(byte, t);
              OK(CU(cuMemFree_v2)(memory));
            });
          while (there < 8) std::this_thread::yield();
          go = true;
          for (std::thread& thread : threads) thread.join();
          if (currentWay != Way::kDirect) CHECK_EQ(sessionsSoFar(), before + 1);
        }
      },
      4);
}

TEST("a session that holds memory or a graph is not parked, nor one whose streams have called functions") {
  everywhereParked(
      [] {
        begin();
        CUdeviceptr memory = 0;
        OK(CU(cuMemAlloc_v2)(&memory, 64));
        OK(CU(cuMemsetD8_v2)(memory, 5, 64));
        stay([&] {
          std::array<unsigned char, 64> back{};
          OK(CU(cuMemcpyDtoH_v2)(back.data(), memory, 64));
          for (const unsigned char byte : back) CHECK_EQ(byte, 5);
        });
        OK(CU(cuMemFree_v2)(memory));
        rest();
        useGraph();
        rest();
        useGraph();
        rest();
        OK(CU(cuLaunchHostFunc)(
            nullptr, [](void*) {}, nullptr));
        stay([] { OK(CU(cuCtxSynchronize)()); });
      },
      4);
}

TEST("streams, events, contexts and what is set on them are there again") {
  everywhereParked(
      [] {
        begin();
        CUstream first = nullptr, low = nullptr;
        OK(CU(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING));
        int least = 0, greatest = 0;
        OK(CU(cuCtxGetStreamPriorityRange)(&least, &greatest));
        OK(CU(cuStreamCreateWithPriority)(&low, CU_STREAM_DEFAULT, least));
        OK(CU(cuCtxSetLimit)(CU_LIMIT_PRINTF_FIFO_SIZE, size_t{1} << 20));
        OK(CU(cuCtxSetLimit)(CU_LIMIT_PRINTF_FIFO_SIZE, size_t{2} << 20));
        CUcontext primary = nullptr, own = nullptr;
        OK(CU(cuCtxGetCurrent)(&primary));
        OK(CU(cuCtxCreate_v2)(&own, 0, 1));
        CUstream ofOwn = nullptr;
        OK(CU(cuStreamCreate)(&ofOwn, CU_STREAM_DEFAULT));
        CUevent event = nullptr, none = nullptr;
        OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
        OK(CU(cuEventCreate)(&none, CU_EVENT_DEFAULT));
        OK(CU(cuEventRecord)(event, ofOwn));
        for (unsigned round = 0; round < 2; ++round) {
          rest();
          OK(CU(cuEventQuery)(event));
          OK(CU(cuStreamWaitEvent)(ofOwn, event, 0));
          float ms = 0;
          FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventElapsedTime)(&ms, none, none));
          CUdeviceptr memory = 0;
          OK(CU(cuMemAlloc_v2)(&memory, 64));
          OK(CU(cuMemsetD8Async)(memory, 9, 64, ofOwn));
          OK(CU(cuStreamSynchronize)(ofOwn));
          OK(CU(cuMemFree_v2)(memory));
          OK(CU(cuCtxSetCurrent)(primary));
          size_t limit = 0;
          OK(CU(cuCtxGetLimit)(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
          CHECK_EQ(limit, size_t{2} << 20);
          OK(CU(cuStreamSynchronize)(first));
          OK(CU(cuStreamQuery)(low));
          OK(CU(cuCtxSetCurrent)(own));
        }
        rest();
        OK(CU(cuCtxDestroy_v2)(own));
        OK(CU(cuCtxSetCurrent)(primary));
        FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventQuery)(event));
        OK(CU(cuStreamDestroy_v2)(low));
        OK(CU(cuStreamSynchronize)(first));
        rest();
        OK(CU(cuStreamSynchronize)(first));
      },
      5);
}

TEST("modules, their functions and what is set on these are there again, and need no GPU to end") {
  everywhereParked(
      [] {
        begin();
        std::string code = kStoreWord;
        CUmodule module = nullptr;
        OK(CU(cuModuleLoadData)(&module, code.c_str()));
        // It was assigned.
        std::fill(code.begin(), code.end(), ' ');
        CUlibrary library = nullptr;
        OK(CU(cuLibraryLoadData)(&library, kStoreWord, nullptr, nullptr, 0, nullptr, nullptr, 0));
        CUkernel kernel = nullptr;
        OK(CU(cuLibraryGetKernel)(&kernel, library, "store"));
        CUmodule ofLibrary = nullptr;
        OK(CU(cuLibraryGetModule)(&ofLibrary, library));
        std::array<CUfunction, 3> functions{};
        OK(CU(cuModuleGetFunction)(&functions[0], module, "store"));
        OK(CU(cuKernelGetFunction)(&functions[1], kernel));
        OK(CU(cuModuleGetFunction)(&functions[2], ofLibrary, "store"));
        OK(CU(cuFuncSetAttribute)(functions[0], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096));
        for (unsigned round = 0; round < 3; ++round) {
          for (const CUfunction function : functions) store(function, round + 1);
          rest();
          int bytes = 0;
          OK(CU(cuFuncGetAttribute)(&bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, functions[0]));
          CHECK_EQ(bytes, 4096);
        }
        store(functions[1], 7);
        rest();
        const size_t before = sessionsSoFar();
        OK(CU(cuLibraryUnload)(library));
        OK(CU(cuModuleUnload)(module));
        CHECK_EQ(sessionsSoFar(), before);
        FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLibraryUnload)(library));
        launch(8);
        OK(CU(cuModuleLoadData)(&module, kStoreWord));
        OK(CU(cuModuleGetFunction)(&functions[0], module, "store"));
        store(functions[0], 9);
      },
      5);
}

TEST("a program whose variables hold what they held at first is parked, and one that wrote them is not") {
  everywhereParked(
      [] {
        begin();
        CUmodule module = nullptr;
        OK(CU(cuModuleLoadData)(&module, kCount));
        CUfunction look = nullptr, count = nullptr;
        OK(CU(cuModuleGetFunction)(&look, module, "look"));
        OK(CU(cuModuleGetFunction)(&count, module, "count"));
        CHECK_EQ(result(look), 0u);
        rest();
        CHECK_EQ(result(look), 0u);
        for (unsigned turn = 1; turn <= 2; ++turn) CHECK_EQ(result(count), turn);
        stay([&] { CHECK_EQ(result(look), 2u); });
        OK(CU(cuModuleUnload)(module));
        rest();
        // A program that has queried an address may have stored it anywhere, so its session is not parked.
        OK(CU(cuModuleLoadData)(&module, kCount));
        CUdeviceptr counter = 0;
        size_t bytes = 0;
        OK(CU(cuModuleGetGlobal_v2)(&counter, &bytes, module, "counter"));
        stay([&] {
          unsigned value = 1;
          OK(CU(cuMemcpyDtoH_v2)(&value, counter, sizeof value));
          CHECK_EQ(value, 0u);
        });
      },
      3);
}

TEST("times between events are the same when they are asked for again, also over a time of rest") {
  everywhereParked(
      [] {
        begin();
        std::array<CUevent, 3> events{};
        for (CUevent& event : events) {
          OK(CU(cuEventCreate)(&event, CU_EVENT_DEFAULT));
          nap(2000);
          OK(CU(cuEventRecord)(event, nullptr));
          OK(CU(cuEventSynchronize)(event));
        }
        const auto between = [&](size_t from, size_t to) {
          float ms = 0;
          OK(CU(cuEventElapsedTime)(&ms, events[from], events[to]));
          return ms;
        };
        // The session may have been parked between two of them; the elapsed time must be the same.
        const auto same = [](float now, float before) {
          if (std::abs(now - before) > 1e-5f * (1 + before))
            fail(__FILE__, __LINE__, std::to_string(now) + " is not " + std::to_string(before));
        };
        const float first = between(0, 1), second = between(1, 2), both = between(0, 2);
        for (unsigned round = 0; round < 2; ++round) {
          rest();
          same(between(0, 1), first);
          same(between(1, 2), second);
          same(between(0, 2), both);
          CHECK_EQ(between(1, 0), -between(0, 1));
        }
        rest();
        nap(5000);
        OK(CU(cuEventRecord)(events[1], nullptr));
        OK(CU(cuEventSynchronize)(events[1]));
        CHECK(between(0, 1) > both + 4);
        CHECK(between(2, 1) > 4);
        same(between(0, 2), both);
      },
      4);
}

TEST("a child that is forked off a parked program has no CUDA, and the program goes on") {
  everywhereParked(
      [] {
        begin();
        useMemory(1);
        rest();
        const pid_t child = ::fork();
        CHECK(child >= 0);
        if (child == 0) {
          FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuCtxSynchronize)());
          ::_exit(0);
        }
        int status = 1;
        CHECK(::waitpid(child, &status, 0) == child);
        CHECK_EQ(status, 0);
        useMemory(2);
        rest();
      },
      2);
}
