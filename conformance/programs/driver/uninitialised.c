// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("uninitialised", "calls before cuInit, calls without a context, null pointers, handles that are none") {
  int number = 0;
  CUdevice gpu;
  CUcontext context = NULL;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  SEE(cuDeviceGetCount(&number));
  SEE(cuDeviceGet(&gpu, 0));
  SEE(cuCtxGetCurrent(&context));
  SEE(cuMemAlloc_v2(&address, 16));
  SEE(cuStreamSynchronize(NULL));
  SEE(cuDevicePrimaryCtxRetain(&context, 0));
  SEE(cuDriverGetVersion(&number));
  SEE(cuInit(7));
  CHECK(cuInit(0));
  SEE(cuInit(0));
  SEE(cuMemAlloc_v2(&address, 16));
  SEE(cuMemFree_v2(0));
  SEE(cuCtxSynchronize());
  SEE(cuStreamCreate((CUstream*)&context, 0));
  SEE(cuMemGetInfo_v2(&bytes, &bytes));
  SEE(cuModuleLoadData((CUmodule*)&context, kernels_ptx));
  SEE(cuDeviceGetCount(NULL));
  SEE(cuDeviceGet(&gpu, 99));
  SEE(cuDeviceGet(&gpu, -1));
  SEE(cuDeviceGetName(NULL, 10, 0));
  SEE(cuDriverGetVersion(NULL));
  primary();
  SEE(cuMemAlloc_v2(NULL, 16));
  SEE(cuMemAlloc_v2(&address, 0));
  SEE(cuMemFree_v2(0));
  SEE(cuMemFree_v2(0x1234));
  SEE(cuStreamCreate(NULL, 0));
  SEE(cuEventCreate(NULL, 0));
  SEE(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuModuleUnload(NULL));
  SEE(cuModuleGetFunction(NULL, NULL, NULL));
  SEE(cuMemcpyHtoD_v2(0, NULL, 16));
  SEE(cuMemcpyDtoH_v2(NULL, 0, 0));
  SEE(cuMemsetD8_v2(0, 1, 16));
}
