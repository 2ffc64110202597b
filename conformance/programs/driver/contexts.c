// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static void stack(const char* what) {
  CUcontext current = NULL;
  CUdevice on = -1;
  CHECK(cuCtxGetCurrent(&current));
  const CUresult status = cuCtxGetDevice(&on);
  say("%s: current %s, device %s", what, current ? "some" : "none", status == CUDA_SUCCESS ? "0" : error_name(status));
}

PROGRAM("contexts", "primary and explicit contexts, the stack of a thread, limits, flags, versions") {
  SEE(cuCtxSynchronize());
  CUdevice gpu = 0;
  SEE(cuDeviceGet(&gpu, 0));
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&gpu, 0));
  stack("after cuInit");
  unsigned flags = 99;
  int active = 99;
  CHECK(cuDevicePrimaryCtxGetState(gpu, &flags, &active));
  say("primary: flags %u, active %d", flags, active);
  SEE(cuDevicePrimaryCtxSetFlags_v2(gpu, CU_CTX_SCHED_BLOCKING_SYNC));
  CUcontext first, again;
  CHECK(cuDevicePrimaryCtxRetain(&first, gpu));
  CHECK(cuDevicePrimaryCtxRetain(&again, gpu));
  say("the same again: %s", yes(first == again));
  CHECK(cuDevicePrimaryCtxGetState(gpu, &flags, &active));
  say("primary: flags %u, active %d", flags, active);
  stack("retained");
  CHECK(cuCtxPushCurrent_v2(first));
  stack("pushed");
  CUcontext popped;
  CHECK(cuCtxPopCurrent_v2(&popped));
  say("popped the same: %s", yes(popped == first));
  stack("popped");
  SEE(cuCtxPopCurrent_v2(&popped));
  CHECK(cuCtxSetCurrent(first));
  stack("set");
  unsigned version = 0;
  CHECK(cuCtxGetApiVersion(first, &version));
  say("version %u", version);
  CHECK(cuCtxGetFlags(&flags));
  say("flags %u", flags);

  const CUlimit limits[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE};
  for (int i = 0; i < 3; ++i) {
    size_t value = 0;
    CHECK(cuCtxGetLimit(&value, limits[i]));
    say("limit %d: %zu", (int)limits[i], value);
    CHECK(cuCtxSetLimit(limits[i], value * 2));
    size_t now = 0;
    CHECK(cuCtxGetLimit(&now, limits[i]));
    say("limit %d twice as high: %s", (int)limits[i], yes(now >= value * 2));
  }
  size_t value = 0;
  SEE(cuCtxGetLimit(&value, (CUlimit)77));
  SEE(cuCtxSetLimit((CUlimit)77, 1));
  CUfunc_cache cache;
  SEE(cuCtxGetCacheConfig(&cache));
  SEE(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  int low = 0, high = 0;
  CHECK(cuCtxGetStreamPriorityRange(&low, &high));
  say("priorities from %d, higher ones below: %s", low, yes(high < low));

  CHECK(cuDevicePrimaryCtxRelease_v2(gpu));
  CHECK(cuDevicePrimaryCtxGetState(gpu, &flags, &active));
  say("released once: active %d", active);
  CHECK(cuDevicePrimaryCtxRelease_v2(gpu));
  CHECK(cuDevicePrimaryCtxGetState(gpu, &flags, &active));
  say("released twice: active %d", active);
  SEE(cuDevicePrimaryCtxRelease_v2(gpu));
  SEE(cuCtxSetCurrent(NULL));
  stack("none");
  CUdeviceptr address;
  SEE(cuMemAlloc_v2(&address, 16));
}
