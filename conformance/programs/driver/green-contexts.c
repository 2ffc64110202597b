// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("green-contexts", "contexts on a part of the multiprocessors: split resources, streams, kernels") {
  CUdevice gpu = device();
  primary();
  CUdevResource all;
  const CUresult status = cuDeviceGetDevResource(gpu, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (status == CUDA_ERROR_NOT_SUPPORTED) skip("no green contexts");
  CHECK(status);
  if (all.sm.smCount < 16) skip("fewer than 16 multiprocessors");
  say("all multiprocessors: %s", yes((int)all.sm.smCount == attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
  CUdevResource groups[2], rest;
  unsigned count = 2;
  SEE(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 8));
  say("%u groups, the first of at least 8: %s", count, yes(groups[0].sm.smCount >= 8));
  CUdevResourceDesc description;
  SEE(cuDevResourceGenerateDesc(&description, &groups[0], 1));
  CUgreenCtx green;
  SEE(cuGreenCtxCreate(&green, description, gpu, CU_GREEN_CTX_DEFAULT_STREAM));
  CUcontext context;
  SEE(cuCtxFromGreenCtx(&context, green));
  CUdevResource own;
  SEE(cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_SM));
  say("its own part: %s", yes(own.sm.smCount == groups[0].sm.smCount));
  CUstream stream;
  SEE(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CUgreenCtx of;
  SEE(cuStreamGetGreenCtx(stream, &of));
  say("the stream is of it: %s", yes(of == green));
  CHECK(cuCtxPushCurrent_v2(context));
  CUmodule module = kernels();
  CUdeviceptr data = allocate(1024);
  int value = 4;
  unsigned n = 256;
  void* parameters[] = {&data, &value, &n};
  launch(kernel(module, "fill"), 8, 32, stream, parameters);
  SEE(cuStreamSynchronize(stream));
  int out = 0;
  CHECK(cuMemcpyDtoH_v2(&out, data + 1020, 4));
  say("filled: %d", out);
  CHECK(cuMemFree_v2(data));
  CHECK(cuModuleUnload(module));
  CHECK(cuStreamDestroy_v2(stream));
  CHECK(cuCtxPopCurrent_v2(&context));
  SEE(cuGreenCtxDestroy(green));
}
