// SPDX-License-Identifier: Apache-2.0
// Two devices of one process: copies between them, and access to each other's memory.
#include <cstring>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

CUcontext retain(CUdevice device) {
  CUcontext context = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&context, device));
  OK(CU(cuCtxSetCurrent)(context));
  return context;
}

std::vector<unsigned> wordsOf(CUdeviceptr p, size_t count) {
  std::vector<unsigned> words(count);
  OK(CU(cuMemcpyDtoH_v2)(words.data(), p, count * sizeof(unsigned)));
  return words;
}

}  // namespace

TEST("copies between devices, in every form") {
  everywhere([] {
    OK(CU(cuInit)(0));
    const CUcontext first = retain(0);
    CUdeviceptr a = 0, b = 0;
    OK(CU(cuMemAlloc_v2)(&a, 40'000));
    OK(CU(cuMemsetD32_v2)(a, 7, 10'000));
    const CUcontext second = retain(1);
    OK(CU(cuMemAlloc_v2)(&b, 40'000));
    OK(CU(cuMemsetD32_v2)(b, 0, 10'000));
    // The work of one device is not ordered with the other's.
    OK(CU(cuCtxSetCurrent)(first));
    OK(CU(cuCtxSynchronize)());
    OK(CU(cuMemcpyPeer)(b, second, a, first, 20'000));
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(CU(cuCtxSynchronize)());
    OK(CU(cuMemcpyPeerAsync)(b + 20'000, second, a, first, 10'000, stream));
    OK(CU(cuStreamSynchronize)(stream));
    CUDA_MEMCPY3D_PEER box{};
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = a;
    box.srcContext = first;
    box.srcPitch = 400;
    box.srcHeight = 5;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = b + 30'000;
    box.dstContext = second;
    box.dstPitch = 200;
    box.dstHeight = 5;
    box.WidthInBytes = 100;
    box.Height = 5;
    box.Depth = 2;
    OK(CU(cuMemcpy3DPeer)(&box));
    OK(CU(cuCtxSynchronize)());
    const auto words = wordsOf(b, 10'000);
    for (size_t i = 0; i < 7500; ++i) CHECK_EQ(words[i], 7u);
    CHECK_EQ(words[7500 + 24], 7u);
    CHECK_EQ(words[7500 + 25], 0u);
    CHECK_EQ(words[7500 + 50], 7u);
    CHECK_EQ(words[9999], 0u);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuMemcpyPeer)(b, nullptr, a, first, 100));
  });
}

TEST("streams and events of another device than the current one") {
  everywhere([] {
    OK(CU(cuInit)(0));
    const CUcontext first = retain(0);
    CUdeviceptr word = 0;
    OK(CU(cuMemAlloc_v2)(&word, 4));
    CUstream stream = nullptr;
    OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUevent event = nullptr;
    OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    CUmodule module = nullptr;
    OK(CU(cuModuleLoadData)(&module, kStoreWord));
    CUfunction function = nullptr;
    OK(CU(cuModuleGetFunction)(&function, module, "store"));
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadData)(&library, kStoreWord, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel kernel = nullptr;
    OK(CU(cuLibraryGetKernel)(&kernel, library, "store"));

    const CUcontext second = retain(1);
    CUstream other = nullptr;
    OK(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    unsigned value = 8;
    void* parameters[] = {&word, &value};
    const auto launch = [&](void* what, CUstream in) {
      return CU(cuLaunchKernel)(static_cast<CUfunction>(what), 1, 1, 1, 1, 1, 1, 0, in, parameters, nullptr);
    };
    // A kernel of a library runs where the stream is; a function only where it has been loaded.
    OK(launch(kernel, stream));
    OK(CU(cuEventRecord)(event, stream));
    OK(CU(cuStreamWaitEvent)(other, event, 0));
    OK(CU(cuStreamSynchronize)(other));
    OK(CU(cuCtxSetCurrent)(first));
    CHECK_EQ(wordsOf(word, 1)[0], 8u);
    OK(launch(function, stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, launch(function, other));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventRecord)(event, other));
    OK(CU(cuCtxSetCurrent)(second));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventRecord)(event, nullptr));
    OK(CU(cuCtxSynchronize)());
  });
}

TEST("what devices may do with each other's memory is as the driver says") {
  everywhere([] {
    OK(CU(cuInit)(0));
    const CUcontext second = retain(1);
    const CUcontext first = retain(0);
    int can = 9, same = 9;
    OK(CU(cuDeviceCanAccessPeer)(&can, 0, 1));
    OK(CU(cuDeviceGetP2PAttribute)(&same, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    CHECK_EQ(can, same);
    CHECK_EQ(can, 0);  // of software GPUs
    FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceCanAccessPeer)(&can, 0, 2));
    FAILS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CU(cuCtxEnablePeerAccess)(second, 0));
    FAILS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CU(cuCtxEnablePeerAccess)(first, 0));  // its own
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, CU(cuCtxDisablePeerAccess)(second));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxEnablePeerAccess)(second, 1));
    CHECK(first != second);
  });
}
