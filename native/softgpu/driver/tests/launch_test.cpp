// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>

#include "softgpu/driver/tests/gate.h"
#include "softgpu/driver/tests/kernels.h"

namespace millpond::softgpu::testing {
namespace {

TEST("a kernel computes, with parameters in both forms") {
  PrimaryContext context;
  KernelModule module;
  constexpr int kSize = 10000;
  std::vector<float> a(kSize);
  std::vector<float> b(kSize);
  std::iota(a.begin(), a.end(), 0.0f);
  std::iota(b.begin(), b.end(), 0.5f);
  const DeviceArray<float> deviceA(a);
  const DeviceArray<float> deviceB(b);
  const DeviceArray<float> sum(kSize);
  OK(launch(module.function("add"), 40, 256, nullptr, deviceA.pointer(), deviceB.pointer(), sum.pointer(), kSize));
  std::vector<float> result = sum.values();
  for (size_t i = 0; i < result.size(); ++i) CHECK_EQ(result[i], a[i] + b[i]);

  struct {
    CUdeviceptr a, b, sum;
    int n;
  } parameters{deviceA.pointer(), deviceB.pointer(), deviceA.pointer(), kSize};
  // Without the padding after the last one: a card accepts no buffer that is longer than the parameters.
  const size_t whole = offsetof(decltype(parameters), n) + sizeof parameters.n;
  size_t size = whole;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  OK(CU(cuLaunchKernel)(module.function("add"), 40, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  CHECK(deviceA.values() == result);

  // Parameters beyond the end of the buffer are zero: here the number of elements.
  size = offsetof(decltype(parameters), n);
  OK(CU(cuMemsetD8_v2)(deviceA.pointer(), 0, kSize * sizeof(float)));
  OK(CU(cuLaunchKernel)(module.function("add"), 40, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  CHECK(deviceA.values() == std::vector<float>(kSize));
  size = whole + 1;
  FAILS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        CU(cuLaunchKernel)(module.function("add"), 40, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  size = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE,
        CU(cuLaunchKernel)(module.function("add"), 40, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  void* pointers[] = {&parameters.a, &parameters.b, &parameters.sum, &parameters.n};
  FAILS(CUDA_ERROR_INVALID_VALUE,
        CU(cuLaunchKernel)(module.function("add"), 40, 1, 1, 256, 1, 1, 0, nullptr, pointers, extra));
  FAILS(CUDA_ERROR_INVALID_VALUE,
        CU(cuLaunchKernel)(module.function("add"), 40, 1, 1, 256, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST("parameters of odd sizes arrive where they belong, and are read at the call") {
  PrimaryContext context;
  KernelModule module;
  const DeviceArray<double> out(1);
  struct Pair {
    char tag;
    double weight;
  } pair{20, 300.5};
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  Gate gate;
  gate.close(stream);
  char a = 1;
  short b = 4000;
  CUdeviceptr pointer = out.pointer();
  void* parameters[] = {&a, &pair, &b, &pointer};
  OK(CU(cuLaunchKernel)(module.function("mixed"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  a = 0;
  pair = {};
  b = 0;
  pointer = 0;
  gate.open();
  OK(CU(cuStreamSynchronize)(stream));
  CHECK_EQ(out.values()[0], 4321.5);
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("launches are checked at the call, and a wrong one breaks nothing") {
  PrimaryContext context;
  KernelModule module;
  CUfunction nothing = module.function("nothing");
  const auto shape = [&](unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                         unsigned shared = 0) {
    return CU(cuLaunchKernel)(nothing, gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr);
  };
  OK(shape(1, 1, 1, 1, 1, 1));
  OK(shape(1, 1, 1, 1024, 1, 1));
  OK(shape(1, 1, 1, 4, 4, 64));
  OK(shape(1, 1, 1, 1, 1, 1, 48 * 1024));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(0, 1, 1, 1, 1, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 0, 1, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 65536, 1, 1, 1, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 1025, 1, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 1, 1, 65));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 32, 33, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(0x80000000u, 1, 1, 1, 1, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, shape(1, 1, 1, 1, 1, 1, 48 * 1024 + 1));
  FAILS(CUDA_ERROR_INVALID_HANDLE, launch(reinterpret_cast<CUfunction>(0x1000), 1, 1, nullptr));
  FAILS(CUDA_ERROR_INVALID_HANDLE, launch(nothing, 1, 1, reinterpret_cast<CUstream>(0x1000)));
  const DeviceArray<int> out(1);
  FAILS(CUDA_ERROR_INVALID_VALUE, launch(module.function("bounded"), 1, 256, nullptr, out.pointer()));
  OK(launch(module.function("bounded"), 1, 128, nullptr, out.pointer()));
  CHECK_EQ(out.values()[0], 128);
}

TEST("shared memory of both kinds, and more of it on request") {
  PrimaryContext context;
  KernelModule module;
  std::vector<int> numbers(1024);
  std::iota(numbers.begin(), numbers.end(), 0);
  const DeviceArray<int> values(numbers);
  CUdeviceptr pointer = values.pointer();
  void* parameters[] = {&pointer};
  CUfunction reverse = module.function("reverse");
  OK(CU(cuLaunchKernel)(reverse, 1, 1, 1, 1024, 1, 1, 4096, nullptr, parameters, nullptr));
  const std::vector<int> reversed(numbers.rbegin(), numbers.rend());
  CHECK(values.values() == reversed);
  OK(CU(cuFuncSetAttribute)(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  OK(CU(cuLaunchKernel)(reverse, 1, 1, 1, 1024, 1, 1, 60000, nullptr, parameters, nullptr));
  CHECK(values.values() == numbers);
  OK(launch(module.function("staticShared"), 1, 1024, nullptr, values.pointer()));
  CHECK_EQ(values.values()[0], 1);
}

TEST("constants can be written between launches") {
  PrimaryContext context;
  KernelModule module;
  const DeviceArray<float> values(std::vector<float>{1, 2, 3});
  OK(launch(module.function("scale"), 1, 32, nullptr, values.pointer(), 3));
  CUdeviceptr factor = 0;
  OK(CU(cuModuleGetGlobal_v2)(&factor, nullptr, module.handle(), "factor"));
  const float ten = 10;
  OK(CU(cuMemcpyHtoD_v2)(factor, &ten, 4));
  OK(launch(module.function("scale"), 1, 32, nullptr, values.pointer(), 3));
  CHECK(values.values() == std::vector<float>({20, 40, 60}));
}

TEST("launches of one stream are in order with copies, on the legacy stream too") {
  PrimaryContext context;
  KernelModule module;
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
  constexpr int kSize = 100000;
  const DeviceArray<int> first(kSize);
  const DeviceArray<int> second(kSize);
  for (int round = 1; round < 20; ++round) {
    OK(launch(module.function("fill"), 16, 256, stream, first.pointer(), kSize, round));
    OK(CU(cuMemcpyDtoDAsync_v2)(second.pointer(), first.pointer(), kSize * 4, round % 2 ? stream : nullptr));
    const std::vector<int> result = second.values();
    CHECK(result == std::vector<int>(kSize, round));
  }
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("kernels of two streams run at the same time, and one may wait for the other") {
  PrimaryContext context;
  KernelModule module;
  CUstream first = nullptr;
  CUstream second = nullptr;
  OK(CU(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING));
  OK(CU(cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING));
  const DeviceArray<int> flag(std::vector<int>{0});
  const DeviceArray<int> out(std::vector<int>{0});
  OK(launch(module.function("await"), 1, 1, first, flag.pointer(), out.pointer()));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(first));
  OK(launch(module.function("store"), 1, 1, second, flag.pointer(), 17));
  OK(CU(cuStreamSynchronize)(first));
  CHECK_EQ(out.values()[0], 17);
  OK(CU(cuStreamDestroy_v2)(first));
  OK(CU(cuStreamDestroy_v2)(second));
}

TEST("as many kernels as a device holds may wait for one more") {
  PrimaryContext context;
  KernelModule module;
  constexpr size_t kMany = 40;
  const DeviceArray<int> flag(std::vector<int>{0});
  const DeviceArray<int> out(std::vector<int>(kMany, 0));
  std::vector<CUstream> streams(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    OK(CU(cuStreamCreate)(&streams[i], CU_STREAM_NON_BLOCKING));
    OK(launch(module.function("await"), 1, 1, streams[i], flag.pointer(), out.pointer() + 4 * i));
  }
  CUstream last = nullptr;
  OK(CU(cuStreamCreate)(&last, CU_STREAM_NON_BLOCKING));
  OK(launch(module.function("store"), 1, 1, last, flag.pointer(), 3));
  OK(CU(cuCtxSynchronize)());
  CHECK(out.values() == std::vector<int>(kMany, 3));
  for (CUstream stream : streams) OK(CU(cuStreamDestroy_v2)(stream));
  OK(CU(cuStreamDestroy_v2)(last));
}

TEST("pinned host memory is read and written by kernels while they run") {
  PrimaryContext context;
  KernelModule module;
  void* host = nullptr;
  OK(CU(cuMemHostAlloc)(&host, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  auto* words = static_cast<int*>(host);
  words[0] = words[1] = 0;
  CUdeviceptr pointer = 0;
  OK(CU(cuMemHostGetDevicePointer_v2)(&pointer, host, 0));
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(launch(module.function("await"), 1, 1, stream, pointer, pointer + 4));
  std::atomic_ref<int>(words[0]).store(23);
  OK(CU(cuStreamSynchronize)(stream));
  CHECK_EQ(words[1], 23);
  OK(CU(cuStreamDestroy_v2)(stream));
  OK(CU(cuMemFreeHost)(host));
}

TEST("extended launches: attributes that only tune are ignored, those that matter refused") {
  PrimaryContext context;
  KernelModule module;
  const DeviceArray<int> out(1);
  CUdeviceptr pointer = out.pointer();
  void* parameters[] = {&pointer};
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[0].value.priority = -1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim.x = attributes[1].value.clusterDim.y = attributes[1].value.clusterDim.z = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  OK(CU(cuLaunchKernelEx)(&config, module.function("bounded"), parameters, nullptr));
  CHECK_EQ(out.values()[0], 64);
  attributes[1].value.clusterDim.x = 2;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuLaunchKernelEx)(&config, module.function("bounded"), parameters, nullptr));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuLaunchKernelEx)(nullptr, module.function("bounded"), parameters, nullptr));
}

TEST("a launch records events: when its blocks may begin, and when it has ended") {
  PrimaryContext context;
  KernelModule module;
  const DeviceArray<int> flag(std::vector<int>{0}), out(std::vector<int>{0});
  CUstream stream = nullptr;
  CUstream other = nullptr;
  CUevent begun = nullptr;
  CUevent ended = nullptr;
  CUevent timed = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
  OK(CU(cuEventCreate)(&begun, CU_EVENT_DISABLE_TIMING));
  OK(CU(cuEventCreate)(&ended, CU_EVENT_DISABLE_TIMING));
  OK(CU(cuEventCreate)(&timed, CU_EVENT_DEFAULT));
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[0].value.launchCompletionEvent.event = begun;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attributes[1].value.programmaticEvent.event = ended;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  CUdeviceptr words[2] = {flag.pointer(), out.pointer()};
  void* parameters[] = {&words[0], &words[1]};
  OK(CU(cuLaunchKernelEx)(&config, module.function("await"), parameters, nullptr));
  // Work that waits for the start ends the kernel.
  OK(CU(cuStreamWaitEvent)(other, begun, 0));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuEventQuery)(ended));
  OK(launch(module.function("store"), 1, 1, other, flag.pointer(), 17));
  OK(CU(cuEventSynchronize)(ended));
  CHECK_EQ(out.values()[0], 17);
  attributes[0].value.launchCompletionEvent.event = timed;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuLaunchKernelEx)(&config, module.function("await"), parameters, nullptr));
  attributes[0].value.launchCompletionEvent.event = nullptr;
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLaunchKernelEx)(&config, module.function("await"), parameters, nullptr));
  for (CUevent event : {begun, ended, timed}) OK(CU(cuEventDestroy_v2)(event));
  for (CUstream each : {stream, other}) OK(CU(cuStreamDestroy_v2)(each));
}

TEST("the blocks of a cooperative grid wait for each other, and more than the device holds are refused") {
  // Each block adds one to the barrier of the grid's workspace, waits for all, and reports how many there were.
  const char* text =
      ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry meet(.param .u64 out) {\n"
      ".reg .b32 %r<8>;\n.reg .b64 %rd<8>;\n.reg .pred %p<2>;\n"
      "mov.u32 %r1, %envreg1;\nmov.u32 %r2, %envreg2;\nmov.b64 %rd1, {%r2, %r1};\n"
      "atom.add.release.gpu.u32 %r3, [%rd1+4], 1;\nmov.u32 %r4, %nctaid.x;\n"
      "AGAIN:\nld.acquire.gpu.u32 %r5, [%rd1+4];\nsetp.lt.u32 %p1, %r5, %r4;\n@%p1 bra AGAIN;\n"
      "ld.param.u64 %rd2, [out];\nmov.u32 %r6, %ctaid.x;\nmul.wide.u32 %rd3, %r6, 4;\nadd.u64 %rd2, %rd2, %rd3;\n"
      "st.global.u32 [%rd2], %r5;\nret;\n}\n";
  PrimaryContext context;
  CUmodule module = nullptr;
  OK(CU(cuModuleLoadData)(&module, text));
  CUfunction meet = nullptr;
  OK(CU(cuModuleGetFunction)(&meet, module, "meet"));
  int perMultiprocessor = 0;
  OK(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&perMultiprocessor, meet, 1, 0));
  int multiprocessors = 0;
  OK(CU(cuDeviceGetAttribute)(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  const auto most = static_cast<unsigned>(perMultiprocessor * multiprocessors);
  const DeviceArray<int> out(most);
  CUdeviceptr pointer = out.pointer();
  void* parameters[] = {&pointer};
  for (int again = 0; again < 3; ++again)
    OK(CU(cuLaunchCooperativeKernel)(meet, most, 1, 1, 1, 1, 1, 0, nullptr, parameters));
  OK(CU(cuCtxSynchronize)());
  for (const int seen : out.values()) CHECK_EQ(seen, static_cast<int>(most));
  FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        CU(cuLaunchCooperativeKernel)(meet, most + 1, 1, 1, 1, 1, 1, 0, nullptr, parameters));
  OK(CU(cuModuleUnload)(module));
}

TEST("occupancy") {
  PrimaryContext context;
  KernelModule module;
  CUfunction nothing = module.function("nothing");
  const auto blocks = [&](int threads, size_t shared) {
    int count = -1;
    OK(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&count, nothing, threads, shared));
    return count;
  };
  CHECK_EQ(blocks(1024, 0), 1);
  CHECK_EQ(blocks(256, 0), 4);
  CHECK_EQ(blocks(32, 0), 16);
  CHECK_EQ(blocks(33, 0), 16);
  CHECK_EQ(blocks(256, 32 * 1024), 2);
  CHECK_EQ(blocks(256, 65 * 1024), 0);
  CHECK_EQ(blocks(2048, 0), 0);
  int grid = 0;
  int block = 0;
  OK(CU(cuOccupancyMaxPotentialBlockSize)(&grid, &block, nothing, nullptr, 0, 0));
  CHECK_EQ(block, 1024);
  CHECK(grid >= 1);
  OK(CU(cuOccupancyMaxPotentialBlockSize)(&grid, &block, nothing, nullptr, 0, 200));
  CHECK(block <= 200);
  size_t shared = 0;
  OK(CU(cuOccupancyAvailableDynamicSMemPerBlock)(&shared, nothing, 2, 256));
  CHECK_EQ(shared, size_t{32 * 1024});
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuOccupancyAvailableDynamicSMemPerBlock)(&shared, nothing, 2, 1024));
}

TEST("many threads launch into many streams") {
  PrimaryContext context;
  KernelModule module;
  CUfunction count = module.function("count");
  constexpr int kThreads = 4;
  constexpr int kLaunches = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      OK(CU(cuCtxSetCurrent)(context.handle()));
      CUstream stream = nullptr;
      OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
      for (int i = 0; i < kLaunches; ++i) OK(launch(count, 2, 32, stream, 3));
      OK(CU(cuStreamSynchronize)(stream));
      OK(CU(cuStreamDestroy_v2)(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CUdeviceptr counter = 0;
  OK(CU(cuModuleGetGlobal_v2)(&counter, nullptr, module.handle(), "counter"));
  int value = 0;
  OK(CU(cuMemcpyDtoH_v2)(&value, counter, 4));
  CHECK_EQ(value, 41 + kThreads * kLaunches * 2 * 32 * 3);
}

}  // namespace
}  // namespace millpond::softgpu::testing
