// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("use-after", "handles after their end: streams, events, modules, memory, contexts; ends twice") {
  CUcontext context = primary();
  CUstream stream;
  CUevent event;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&event, 0));
  CUdeviceptr memory = allocate(64);
  // Queued work continues when its stream is destroyed.
  CUmodule module = kernels();
  int value = 5;
  unsigned n = 16;
  void* parameters[] = {&memory, &value, &n};
  launch(kernel(module, "fill"), 1, 16, stream, parameters);
  CHECK(cuEventRecord(event, stream));
  SEE(cuStreamDestroy_v2(stream));
  SEE(cuEventSynchronize(event));
  int out[16];
  CHECK(cuMemcpyDtoH_v2(out, memory, sizeof out));
  say("filled: %d %d", out[0], out[15]);
  SEE(cuEventDestroy_v2(event));
  SEE(cuMemFree_v2(memory));
  SEE(cuMemFree_v2(memory));
  char byte = 0;
  SEE(cuMemcpyDtoH_v2(&byte, memory, 1));
  SEE(cuModuleUnload(module));
  CUcontext made;
  CHECK(cuCtxCreate_v4(&made, NULL, 0, device()));
  CHECK(cuCtxSetCurrent(made));
  memory = allocate(64);
  CHECK(cuStreamCreate(&stream, 0));
  SEE(cuCtxDestroy_v2(made));
  CUcontext current = NULL;
  CHECK(cuCtxGetCurrent(&current));
  say("current after destroying it: %s", current == NULL ? "none" : current == context ? "the one below" : "another");
  SEE(cuCtxSetCurrent(context));
  SEE(cuMemFree_v2(memory));
  SEE(cuCtxSynchronize());
}
