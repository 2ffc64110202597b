// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"

static pthread_t main_thread;
static int order[32];
static atomic_int used;

static void CUDA_CB_note(void* data) {
  order[atomic_fetch_add(&used, 1)] = (int)(intptr_t)data + (pthread_equal(pthread_self(), main_thread) ? 1000 : 0);
}
static void after_stream(CUstream stream, CUresult status, void* data) {
  (void)stream;
  order[atomic_fetch_add(&used, 1)] = (int)(intptr_t)data + (int)status * 100;
}
static void calls_cuda(void* data) { *(CUresult*)data = cuCtxSynchronize(); }

PROGRAM("callbacks", "host functions and callbacks of the driver: order among work, thread, errors") {
  primary();
  main_thread = pthread_self();
  CUmodule module = kernels();
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr cell = allocate(4);
  for (int i = 0; i < 10; ++i) {
    int value = i;
    unsigned n = 1;
    void* parameters[] = {&cell, &value, &n};
    launch(kernel(module, "fill"), 1, 1, stream, parameters);
    if (i % 3 == 2) CHECK(cuStreamAddCallback(stream, after_stream, (void*)(intptr_t)i, 0));
    else CHECK(cuLaunchHostFunc(stream, CUDA_CB_note, (void*)(intptr_t)i));
  }
  CHECK(cuStreamSynchronize(stream));
  printf("order:");
  for (int i = 0; i < used; ++i) printf(" %d", order[i]);
  say(" ");
  CUresult inside = CUDA_SUCCESS;
  CHECK(cuLaunchHostFunc(stream, calls_cuda, &inside));
  CHECK(cuStreamSynchronize(stream));
  say("a call within: %s", error_name(inside));
  CHECK(cuLaunchHostFunc(NULL, CUDA_CB_note, (void*)50));
  CHECK(cuCtxSynchronize());
  say("in the legacy stream: %d", order[used - 1]);
  SEE(cuLaunchHostFunc(stream, NULL, NULL));
  SEE(cuStreamAddCallback(stream, NULL, NULL, 0));
  SEE(cuStreamAddCallback(stream, after_stream, NULL, 1));
}
