// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("sticky", "an illegal address as the driver tells of it: which calls fail from then on") {
  CUcontext context = primary();
  CUmodule module = kernels();
  CUfunction bounds = kernel(module, "bounds"), nothing = kernel(module, "nothing");
  CUdeviceptr data = allocate(64);
  CUstream stream;
  CUevent event;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&event, 0));
  // On every machine this address is unmapped: there is neither device memory nor, for devices that can access it, host
  // memory.
  CUdeviceptr nowhere = 0x1000;
  unsigned long long index = 0;
  void* parameters[] = {&nowhere, &index};
  SEE(cuLaunchKernel(bounds, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
  SEE(cuStreamSynchronize(stream));
  SEE(cuStreamSynchronize(stream));
  SEE(cuStreamQuery(stream));
  SEE(cuCtxSynchronize());
  char byte;
  SEE(cuMemcpyDtoH_v2(&byte, data, 1));
  CUdeviceptr more;
  SEE(cuMemAlloc_v2(&more, 16));
  SEE(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuEventRecord(event, stream));
  SEE(cuEventQuery(event));
  CUcontext current;
  SEE(cuCtxGetCurrent(&current));
  CUdevice gpu;
  SEE(cuCtxGetDevice(&gpu));
  int value;
  SEE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  SEE(cuCtxSetCurrent(context));
  SEE(cuMemFree_v2(data));
}
