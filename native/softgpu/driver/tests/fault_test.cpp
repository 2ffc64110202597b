// SPDX-License-Identifier: Apache-2.0
// A context whose kernel fails.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "softgpu/driver/tests/gate.h"
#include "softgpu/driver/tests/kernels.h"

namespace millpond::softgpu::testing {
namespace {

void expectSticky(CUresult code) {
  CUdeviceptr pointer = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  size_t free = 0;
  size_t total = 0;
  FAILS(code, CU(cuCtxSynchronize)());
  FAILS(code, CU(cuCtxSynchronize)());
  FAILS(code, CU(cuMemAlloc_v2)(&pointer, 16));
  FAILS(code, CU(cuMemGetInfo_v2)(&free, &total));
  FAILS(code, CU(cuStreamCreate)(&stream, 0));
  FAILS(code, CU(cuEventCreate)(&event, 0));
  FAILS(code, CU(cuStreamQuery)(nullptr));
  FAILS(code, CU(cuMemcpyHtoD_v2)(0x1000, &pointer, 8));
  // Queries that need no device are still answered.
  CUcontext current = nullptr;
  CUdevice device = -1;
  OK(CU(cuCtxGetCurrent)(&current));
  OK(CU(cuCtxGetDevice)(&device));
}

void expectFault(CUresult code, const std::function<void(KernelModule&)>& provoke) {
  {
    OwnContext context;
    KernelModule module;
    provoke(module);
    expectSticky(code);
  }
  // Others continue, and so does the device.
  PrimaryContext context;
  KernelModule module;
  const DeviceArray<int> out(1);
  OK(launch(module.function("store"), 1, 1, nullptr, out.pointer(), 5));
  CHECK_EQ(out.values()[0], 5);
}

TEST("a write to a wild address is an illegal address") {
  expectFault(CUDA_ERROR_ILLEGAL_ADDRESS, [](KernelModule& module) {
    OK(launch(module.function("store"), 1, 1, nullptr, CUdeviceptr{0xDEAD0000}, 1));
  });
}

TEST("null is an illegal address") {
  expectFault(CUDA_ERROR_ILLEGAL_ADDRESS,
              [](KernelModule& module) { OK(launch(module.function("store"), 1, 1, nullptr, CUdeviceptr{0}, 1)); });
}

TEST("memory of the process that the driver does not know is an illegal address") {
  expectFault(CUDA_ERROR_ILLEGAL_ADDRESS, [](KernelModule& module) {
    static int host = 0;
    OK(launch(module.function("store"), 1, 1, nullptr, reinterpret_cast<CUdeviceptr>(&host), 1));
    CU(cuCtxSynchronize)();
    CHECK_EQ(host, 0);
  });
}

TEST("freed memory is an illegal address") {
  expectFault(CUDA_ERROR_ILLEGAL_ADDRESS, [](KernelModule& module) {
    CUdeviceptr pointer = 0;
    OK(CU(cuMemAlloc_v2)(&pointer, 4096));
    OK(launch(module.function("store"), 1, 1, nullptr, pointer, 1));
    OK(CU(cuMemFree_v2)(pointer));
    OK(launch(module.function("store"), 1, 1, nullptr, pointer, 1));
  });
}

TEST("the far side of an allocation is an illegal address") {
  expectFault(CUDA_ERROR_ILLEGAL_ADDRESS, [](KernelModule& module) {
    CUdeviceptr pointer = 0;
    OK(CU(cuMemAlloc_v2)(&pointer, 3 << 20));
    OK(launch(module.function("fill"), 4, 128, nullptr, pointer, (3 << 20) / 4 + 4096, 1));
  });
}

TEST("memory of the other device is an illegal address") {
  PrimaryContext other(1);
  const DeviceArray<int> there(1);
  expectFault(CUDA_ERROR_ILLEGAL_ADDRESS,
              [&](KernelModule& module) { OK(launch(module.function("store"), 1, 1, nullptr, there.pointer(), 1)); });
}

TEST("an odd address is misaligned") {
  expectFault(CUDA_ERROR_MISALIGNED_ADDRESS, [](KernelModule& module) {
    CUdeviceptr pointer = 0;
    OK(CU(cuMemAlloc_v2)(&pointer, 64));
    OK(launch(module.function("store"), 1, 1, nullptr, pointer + 2, 1));
  });
}

TEST("a trap is a launch failure, a failed assertion an assertion") {
  expectFault(CUDA_ERROR_LAUNCH_FAILED,
              [](KernelModule& module) { OK(launch(module.function("trap"), 1, 1, nullptr)); });
  expectFault(CUDA_ERROR_ASSERT, [](KernelModule& module) {
    OK(launch(module.function("check"), 1, 1, nullptr, 7));
    OK(CU(cuCtxSynchronize)());
    OK(launch(module.function("check"), 1, 1, nullptr, 8));
  });
}

TEST("work queued behind a fault is skipped, and kernels beside it stop") {
  OwnContext context;
  KernelModule module;
  CUstream stuck = nullptr;
  CUstream failing = nullptr;
  OK(CU(cuStreamCreate)(&stuck, CU_STREAM_NON_BLOCKING));
  OK(CU(cuStreamCreate)(&failing, CU_STREAM_NON_BLOCKING));
  CUdeviceptr flag = 0;
  OK(CU(cuMemAlloc_v2)(&flag, 8));
  OK(CU(cuMemsetD32_v2)(flag, 0, 2));
  OK(CU(cuCtxSynchronize)());
  void* host = nullptr;
  OK(CU(cuMemHostAlloc)(&host, 4, 0));
  *static_cast<int*>(host) = 0;
  OK(launch(module.function("await"), 1, 1, stuck, flag, flag + 4));
  CUevent event = nullptr;
  OK(CU(cuEventCreate)(&event, 0));
  Gate gate;
  gate.close(failing);
  OK(launch(module.function("trap"), 1, 1, failing));
  OK(launch(module.function("store"), 1, 1, failing, reinterpret_cast<CUdeviceptr>(host), 9));
  bool hasRun = false;
  OK(CU(cuLaunchHostFunc)(
      failing, [](void* data) { *static_cast<bool*>(data) = true; }, &hasRun));
  OK(CU(cuEventRecord)(event, failing));
  gate.open();
  FAILS(CUDA_ERROR_LAUNCH_FAILED, CU(cuEventSynchronize)(event));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, CU(cuCtxSynchronize)());
  CHECK_EQ(*static_cast<int*>(host), 0);
  CHECK(!hasRun);
}

TEST("a fault in a primary context ends with its reset") {
  OK(CU(cuInit)(0));
  CUcontext context = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
  {
    KernelModule module;
    OK(launch(module.function("trap"), 1, 1, nullptr));
    FAILS(CUDA_ERROR_LAUNCH_FAILED, CU(cuCtxSynchronize)());
  }
  OK(CU(cuDevicePrimaryCtxReset_v2)(0));
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  size_t free = 0;
  size_t total = 0;
  OK(CU(cuMemGetInfo_v2)(&free, &total));
  CHECK_EQ(free, total);
  KernelModule module;
  OK(launch(module.function("nothing"), 1, 1, nullptr));
  OK(CU(cuCtxSynchronize)());
  OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
  OK(CU(cuCtxSetCurrent)(nullptr));
}

TEST("memory is freed while kernels of another context run") {
  PrimaryContext busy(0);
  KernelModule module;
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  const DeviceArray<int> values(100000);
  for (int i = 0; i < 30; ++i) OK(launch(module.function("fill"), 8, 128, stream, values.pointer(), 100000, i));
  std::thread([&] {
    PrimaryContext other(1);
    for (int i = 0; i < 200; ++i) {
      CUdeviceptr pointer = 0;
      OK(CU(cuMemAlloc_v2)(&pointer, 100000));
      OK(CU(cuMemsetD8Async)(pointer, 1, 100000, nullptr));
      OK(CU(cuMemFree_v2)(pointer));
    }
  }).join();
  OK(CU(cuStreamSynchronize)(stream));
  CHECK(values.values() == std::vector<int>(100000, 29));
  OK(CU(cuStreamDestroy_v2)(stream));
}

// ".../<UUID>.lost" of a device.
std::string lostPathOf(CUdevice device) {
  CUuuid uuid{};
  OK(CU(cuDeviceGetUuid_v2)(&uuid, device));
  std::string name;
  for (const char byte : uuid.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    name += digits;
  }
  return std::string(::getenv("MILLPOND_SOFTGPU_STATE")) + "/" + name + ".lost";
}

TEST("a device that has fallen off its bus fails what it is given and takes no contexts, until it is back") {
  OK(CU(cuInit)(0));
  constexpr CUdevice kLost = 1;
  constexpr auto kLearnt = std::chrono::milliseconds(50);
  const std::string path = lostPathOf(kLost);
  CUcontext context = nullptr;
  OK(CU(cuCtxCreate_v2)(&context, 0, kLost));
  OK(CU(cuMemsetD8_v2)(DeviceArray<int>(4).pointer(), 1, 16));
  const DeviceArray<int> memory(4);
  CHECK(std::ofstream(path).good());
  std::this_thread::sleep_for(kLearnt);
  CU(cuMemsetD8Async)(memory.pointer(), 1, 16, nullptr);
  expectSticky(CUDA_ERROR_LAUNCH_FAILED);
  OK(CU(cuCtxDestroy_v2)(context));
  FAILS(CUDA_ERROR_DEVICE_UNAVAILABLE, CU(cuCtxCreate_v2)(&context, 0, kLost));
  FAILS(CUDA_ERROR_DEVICE_UNAVAILABLE, CU(cuDevicePrimaryCtxRetain)(&context, kLost));
  {
    // The other one continues.
    OwnContext other;
    OK(CU(cuMemsetD8_v2)(DeviceArray<int>(4).pointer(), 1, 16));
  }
  CHECK(std::filesystem::remove(path));
  std::this_thread::sleep_for(kLearnt);
  OK(CU(cuCtxCreate_v2)(&context, 0, kLost));
  OK(CU(cuMemsetD8_v2)(DeviceArray<int>(4).pointer(), 1, 16));
  OK(CU(cuCtxDestroy_v2)(context));
}

}  // namespace
}  // namespace millpond::softgpu::testing
