// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include "driver.h"

static CUmodule module;
static CUcontext context;
static CUdeviceptr logs;

static void* in_thread(void* data) {
  const int index = *(int*)data;
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr log = logs + (CUdeviceptr)index * 128;
  for (int i = 0; i < 10; ++i) {
    int value = index * 100 + i;
    void* parameters[] = {&log, &value};
    CHECK(cuLaunchKernel_ptsz(kernel(module, "append"), 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  }
  int last = 0;
  CHECK(cuMemcpyDtoHAsync_v2_ptsz(&last, log + 40, 4, NULL));
  CHECK(cuStreamSynchronize_ptsz(NULL));
  if (last != index * 100 + 9) say("thread %d saw %d", index, last);
  CHECK(cuMemcpyDtoH_v2_ptds(&last, log, 4));
  if (last != 10) say("thread %d counted %d", index, last);
  return NULL;
}

PROGRAM("per-thread-entries", "the variants of functions for which a null stream is the thread's own") {
  context = primary();
  module = kernels();
  logs = allocate(4 * 128);
  CHECK(cuMemsetD32_v2(logs, 0, 128));
  CHECK(cuCtxSynchronize());
  pthread_t threads[4];
  int indices[4];
  for (int i = 0; i < 4; ++i) {
    indices[i] = i;
    pthread_create(&threads[i], NULL, in_thread, &indices[i]);
  }
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  int out[128];
  CHECK(cuMemcpyDtoH_v2(out, logs, sizeof out));
  for (int i = 0; i < 4; ++i) say("log %d: %d, first %d, last %d", i, out[i * 32], out[i * 32 + 1], out[i * 32 + 10]);
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SEE(cuEventRecord_ptsz(event, NULL));
  SEE(cuStreamWaitEvent_ptsz(NULL, event, 0));
  SEE(cuStreamSynchronize_ptsz(NULL));
  SEE(cuStreamQuery_ptsz(NULL));
  SEE(cuMemsetD8Async_ptsz(logs, 1, 4, NULL));
  unsigned flags = 9;
  SEE(cuStreamGetFlags_ptsz(NULL, &flags));
  unsigned long long own = 0, legacy = 0;
  CHECK(cuStreamGetId_ptsz(NULL, &own));
  CHECK(cuStreamGetId(NULL, &legacy));
  say("another stream than the legacy one: %s", yes(own != legacy));
}
