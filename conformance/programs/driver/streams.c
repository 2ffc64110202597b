// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static CUmodule module;
static CUcontext context;

static void append(CUdeviceptr log, int value, CUstream stream) {
  void* parameters[] = {&log, &value};
  launch(kernel(module, "append"), 1, 1, stream, parameters);
}

PROGRAM("streams", "streams of the driver: flags, priorities, identities, default streams of both kinds") {
  context = primary();
  module = kernels();
  CUdeviceptr log = allocate(64 * sizeof(int));
  CHECK(cuMemsetD32_v2(log, 0, 64));
  CUstream blocking, free_one, urgent;
  CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CHECK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
  int low = 0, high = 0;
  CHECK(cuCtxGetStreamPriorityRange(&low, &high));
  CHECK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, high));
  for (int i = 0; i < 5; ++i) {
    append(log, i * 10, blocking);
    append(log, i * 10 + 1, NULL);
    append(log, i * 10 + 2, CU_STREAM_LEGACY);
    append(log, i * 10 + 3, CU_STREAM_PER_THREAD);
    // Two blocking streams are ordered only by the legacy stream between them.
    append(log, i * 10 + 4, NULL);
  }
  append(log, 99, NULL);
  int out[64];
  CHECK(cuMemcpyDtoH_v2(out, log, sizeof out));
  printf("order of %d:", out[0]);
  for (int i = 1; i <= out[0]; ++i) printf(" %d", out[i]);
  say(" ");
  unsigned flags = 9;
  int priority = 9;
  CUstream all[] = {blocking, free_one, urgent, NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
  for (int i = 0; i < 6; ++i) {
    unsigned long long id = 0;
    CUcontext of = NULL;
    CUdevice gpu = -1;
    CHECK(cuStreamGetFlags(all[i], &flags));
    CHECK(cuStreamGetPriority(all[i], &priority));
    CHECK(cuStreamGetId(all[i], &id));
    CHECK(cuStreamGetCtx(all[i], &of));
    CHECK(cuStreamGetDevice(all[i], &gpu));
    say("stream %d: flags %u, urgent %s, own context %s, device %d", i, flags, yes(priority == high), yes(of == context), gpu);
  }
  unsigned long long a = 0, b = 0;
  CHECK(cuStreamGetId(NULL, &a));
  CHECK(cuStreamGetId(CU_STREAM_LEGACY, &b));
  say("null is the legacy stream: %s", yes(a == b));
  SEE(cuStreamQuery(blocking));
  SEE(cuStreamDestroy_v2(NULL));
  SEE(cuStreamDestroy_v2(CU_STREAM_LEGACY));
  SEE(cuStreamCreate(&urgent, 77));
  SEE(cuStreamWaitEvent(blocking, NULL, 0));
  for (int i = 0; i < 2; ++i) SEE(cuStreamDestroy_v2(all[i]));
}
