// SPDX-License-Identifier: Apache-2.0
// Copies to a device that return when they are done, as does what is before them in their stream: only where something may
// be under way do they ask the worker.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr size_t kBytes = size_t{128} << 10;

/// Runs a program over TCP, and returns for each call of that name whether it waited for the worker.
std::vector<bool> waitsOf(const std::string& name, const std::function<void()>& program) {
  std::string folder = (std::filesystem::temp_directory_path() / "millpond-trace-XXXXXX").string();
  CHECK(::mkdtemp(folder.data()) != nullptr);
  CHECK_EQ(runProgram(Way::kTcp,
                      [&] {
                        ::setenv("MILLPOND_LOG", ("off," + folder + "/calls").c_str(), 1);
                        program();
                      }),
           0);
  std::vector<bool> waits;
  std::ifstream file(folder + "/calls");
  for (std::string line; std::getline(file, line);)
    if (line.find(" " + name + "(") != line.npos) waits.push_back(line.find("; waits ") != line.npos);
  std::filesystem::remove_all(folder);
  return waits;
}

void* pinned() {
  void* memory = nullptr;
  OK(CU(cuMemHostAlloc)(&memory, kBytes, 0));
  return memory;
}

CUdeviceptr allocate(size_t bytes = kBytes) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, bytes));
  return memory;
}

}  // namespace

TEST("a copy from pinned memory that follows nothing under way does not ask the worker") {
  const auto waits = waitsOf("cuMemcpyHtoD_v2", [] {
    begin();
    void* from = pinned();
    const CUdeviceptr to = allocate();
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    OK(CU(cuMemcpyHtoD_v2)(to, from, kBytes));
    OK(CU(cuMemsetD8Async)(to, 1, kBytes, nullptr));
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(CU(cuMemsetD8Async)(to, 1, kBytes, stream));
    OK(CU(cuStreamSynchronize)(stream));
    // The work of other streams is unknown.
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    CUevent event = nullptr;
    OK(CU(cuEventCreate)(&event, 0));
    OK(CU(cuEventRecord)(event, nullptr));
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    OK(CU(cuCtxSynchronize)());
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    CUipcMemHandle handle{};
    // If sessions share memory, another process may read it when this one signals that it is there.
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuIpcGetMemHandle)(&handle, to));
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
  });
  CHECK((waits == std::vector<bool>{false, false, true, false, true, true, false, true}));
}

TEST("a long copy from pageable memory returns after what is before it in its stream") {
  everywhere([] {
    begin();
    constexpr size_t kLargeBytes = size_t{16} << 20;
    const CUdeviceptr large = allocate(kLargeBytes), to = allocate();
    CUevent event = nullptr;
    OK(CU(cuEventCreate)(&event, 0));
    const std::vector<std::byte> from(kBytes);
    CUDA_MEMCPY2D box{};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = from.data();
    box.srcPitch = 1024;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = to;
    box.dstPitch = 1024;
    box.WidthInBytes = 960;
    box.Height = 128;
    for (const bool isBox : {false, true}) {
      for (int fill = 0; fill < 40; ++fill) OK(CU(cuMemsetD32Async)(large, 7, kLargeBytes / 4, nullptr));
      OK(CU(cuEventRecord)(event, nullptr));
      OK(isBox ? CU(cuMemcpy2D_v2)(&box) : CU(cuMemcpyHtoD_v2)(to, from.data(), kBytes));
      OK(CU(cuEventQuery)(event));
    }
  });
}

TEST("a copy from pinned memory is done before any other stream reads it") {
  // The software GPU delays work as long as CUDA allows.
  ::setenv("MILLPOND_SOFTGPU_CHAOS", "1", 1);
  everywhere([] {
    begin();
    auto* from = static_cast<unsigned*>(pinned());
    std::vector<unsigned> read(kBytes / sizeof *from);
    const CUdeviceptr to = allocate(), copy = allocate();
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= 100; ++round) {
      std::fill_n(from, read.size(), round);
      OK(CU(cuCtxSynchronize)());
      OK(CU(cuMemcpyHtoD_v2)(to, from, kBytes));
      if (round % 2 == 0) OK(CU(cuStreamQuery)(nullptr));
      OK(CU(cuMemcpyDtoDAsync_v2)(copy, to, kBytes, stream));
      OK(CU(cuMemcpyDtoHAsync_v2)(read.data(), copy, kBytes, stream));
      OK(CU(cuStreamSynchronize)(stream));
      CHECK(std::ranges::all_of(read, [&](unsigned word) { return word == round; }));
    }
  });
  ::unsetenv("MILLPOND_SOFTGPU_CHAOS");
}

TEST("copies that are done at once keep no other thread from ending a host function") {
  everywhere([] {
    begin();
    CUcontext context = nullptr;
    OK(CU(cuCtxGetCurrent)(&context));
    void* from = pinned();
    const CUdeviceptr to = allocate();
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
    std::atomic<bool> ends{false};
    std::thread other([&] {
      OK(CU(cuCtxSetCurrent)(context));
      for (int round = 0; round < 50; ++round) {
        std::atomic<bool> mayReturn{false};
        OK(CU(cuLaunchHostFunc)(
            stream, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }, &mayReturn));
        // Natively this does not wait for streams.
        CUevent event = nullptr;
        OK(CU(cuEventCreate)(&event, 0));
        OK(CU(cuEventDestroy_v2)(event));
        int attribute = 0;
        OK(CU(cuDeviceGetAttribute)(&attribute, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
        FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(stream));
        mayReturn.store(true);
        mayReturn.notify_one();
        OK(CU(cuStreamSynchronize)(stream));
      }
      ends.store(true);
    });
    while (!ends.load()) OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    other.join();
  });
}

TEST("a failure before a copy that does not ask is told by the next wait") {
  everywhere([] {
    begin();
    void* from = pinned();
    const CUdeviceptr to = allocate();
    CUmodule module = nullptr;
    CUfunction store = nullptr;
    OK(CU(cuModuleLoadData)(&module, kStoreWord));
    OK(CU(cuModuleGetFunction)(&store, module, "store"));
    OK(CU(cuMemcpyHtoD_v2)(to, from, 4096));
    CUdeviceptr nowhere = 8;
    unsigned value = 1;
    std::array<void*, 2> parameters = {&nowhere, &value};
    OK(CU(cuLaunchKernel)(store, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters.data(), nullptr));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuMemcpyHtoD_v2)(to, from, 4096));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuMemcpyHtoD_v2)(to, from, 4096));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
  });
}

TEST("a copy that meets the failure of a kernel while it is prepared tells that failure") {
  everywhere([] {
    begin();
    void* from = pinned();
    const CUdeviceptr to = allocate();
    CUmodule module = nullptr;
    CUfunction store = nullptr;
    OK(CU(cuModuleLoadData)(&module, kStoreWord));
    OK(CU(cuModuleGetFunction)(&store, module, "store"));
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
    std::atomic<bool> mayFail{false};
    OK(CU(cuLaunchHostFunc)(
        stream, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }, &mayFail));
    CUdeviceptr nowhere = 8;
    unsigned value = 1;
    std::array<void*, 2> parameters = {&nowhere, &value};
    OK(CU(cuLaunchKernel)(store, 1, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr));
    mayFail.store(true);
    mayFail.notify_one();
    // Each of these takes memory of the worker that is not there yet.
    for (size_t bytes = 4096; bytes <= kBytes; bytes *= 2) {
      const CUresult copied = CU(cuMemcpyHtoDAsync_v2)(to, from, bytes, stream);
      CHECK(copied == CUDA_SUCCESS || copied == CUDA_ERROR_ILLEGAL_ADDRESS);
      const CUresult landed = CU(cuMemcpyDtoHAsync_v2)(from, to, bytes, stream);
      CHECK(landed == CUDA_SUCCESS || landed == CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuStreamSynchronize)(stream));
  });
}
