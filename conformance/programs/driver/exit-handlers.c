// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

// Libraries keep their objects until the process ends, and destroy them in handlers that run after the thread's own
// variables are gone.

static CUcontext context;
static CUstream stream;
static CUevent event;
static CUdeviceptr memory;
static CUmodule module;

static void clean_up(void) {
  CUcontext current = NULL;
  SEE(cuCtxGetCurrent(&current));
  say("current: %s", yes(current == context));
  SEE(cuCtxPushCurrent_v2(context));
  SEE(cuCtxPushCurrent_v2(context));
  SEE(cuCtxSynchronize());
  SEE(cuEventSynchronize(event));
  say("word: %u", word_at(memory));
  SEE(cuEventDestroy_v2(event));
  SEE(cuStreamDestroy_v2(stream));
  SEE(cuModuleUnload(module));
  SEE(cuMemFree_v2(memory));
  SEE(cuCtxPopCurrent_v2(&current));
  SEE(cuCtxPopCurrent_v2(&current));
  SEE(cuCtxPopCurrent_v2(&current));
  SEE(cuDevicePrimaryCtxRelease_v2(0));
}

PROGRAM("exit-handlers", "an exit handler of the program ends what is left, in a context that it pushes") {
  context = primary();
  // Handlers run in reverse order, so the driver has not shut down yet when this one runs.
  if (atexit(clean_up)) skip("no room for an exit handler");
  CHECK(cuCtxPushCurrent_v2(context));
  CHECK(cuCtxPushCurrent_v2(context));
  CHECK(cuStreamCreate(&stream, 0));
  CHECK(cuEventCreate(&event, 0));
  memory = allocate(64);
  module = kernels();
  int value = 77;
  unsigned n = 16;
  void* parameters[] = {&memory, &value, &n};
  launch(kernel(module, "fill"), 1, 16, stream, parameters);
  CHECK(cuEventRecord(event, stream));
}
