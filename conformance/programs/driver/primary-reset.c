// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("primary-reset", "a primary context that is reset and lives again, with new settings") {
  CUcontext context = primary();
  CUdevice gpu = device();
  CUdeviceptr memory = allocate(1024);
  SEE(cuDevicePrimaryCtxReset_v2(gpu));
  unsigned flags = 9;
  int active = 9;
  CHECK(cuDevicePrimaryCtxGetState(gpu, &flags, &active));
  say("active %d", active);
  CUcontext current = NULL;
  CHECK(cuCtxGetCurrent(&current));
  say("still current: %s", yes(current == context));
  SEE(cuMemFree_v2(memory));
  SEE(cuDevicePrimaryCtxSetFlags_v2(gpu, CU_CTX_SCHED_YIELD));
  CUcontext again;
  SEE(cuDevicePrimaryCtxRetain(&again, gpu));
  CHECK(cuCtxSetCurrent(again));
  CHECK(cuCtxGetFlags(&flags));
  say("schedule %u", flags & CU_CTX_SCHED_MASK);
  memory = allocate(64);
  SEE(cuMemsetD32_v2(memory, 0x1234, 16));
  unsigned out[16];
  SEE(cuMemcpyDtoH_v2(out, memory, sizeof out));
  say("it works: %x", out[15]);
  SEE(cuMemFree_v2(memory));
  SEE(cuDevicePrimaryCtxSetFlags_v2(gpu, 0x80000));
  SEE(cuDevicePrimaryCtxReset_v2(99));
}
