// SPDX-License-Identifier: Apache-2.0
// Calls that go on working after a kernel has failed.
#include <array>

#include "testing/streams/program.h"

using namespace millpond::streams;

TEST("kernels of libraries are found while a context has failed, and run after its reset") {
  context();
  std::ifstream file(kernelFile, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CUlibrary library = nullptr, second = nullptr;
  OK(CU(cuLibraryLoadData)(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(CU(cuLaunchKernel)(kernel("trap"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, CU(cuCtxSynchronize)());
  CUkernel fill = nullptr, store = nullptr;
  OK(CU(cuLibraryGetKernel)(&fill, library, "fill"));
  FAILS(CUDA_ERROR_NOT_FOUND, CU(cuLibraryGetKernel)(&store, library, "absent"));
  OK(CU(cuLibraryLoadData)(&second, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(CU(cuLibraryGetKernel)(&store, second, "store"));
  FAILS(CUDA_ERROR_LAUNCH_FAILED, CU(cuCtxSynchronize)());
  OK(CU(cuDevicePrimaryCtxReset_v2)(0));
  CUcontext again = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&again, 0));
  OK(CU(cuCtxSetCurrent)(again));
  CUdeviceptr data = allocate(4 * sizeof(int));
  int count = 4, value = 7, stored = 9;
  std::array<void*, 3> filled{&data, &count, &value};
  OK(CU(cuLaunchKernel)(reinterpret_cast<CUfunction>(fill), 1, 1, 1, 4, 1, 1, 0, nullptr, filled.data(), nullptr));
  std::array<void*, 2> one{&data, &stored};
  OK(CU(cuLaunchKernel)(reinterpret_cast<CUfunction>(store), 1, 1, 1, 1, 1, 1, 0, nullptr, one.data(), nullptr));
  const std::vector<int> expected{9, 7, 7, 7};
  CHECK(read(data, 4) == expected);
}

int main(int argc, char** argv) { return run(argc, argv); }
