// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include "driver.h"

static void* other_thread(void* context) {
  CUcontext current = (CUcontext)1;
  CHECK(cuCtxGetCurrent(&current));
  say("a new thread has %s", current ? "some context" : "none");
  CUdeviceptr address;
  SEE(cuMemAlloc_v2(&address, 16));
  CHECK(cuCtxSetCurrent((CUcontext)context));
  SEE(cuMemAlloc_v2(&address, 16));
  CHECK(cuMemFree_v2(address));
  return NULL;
}

PROGRAM("contexts-explicit", "created contexts: the stack, threads, what each has of its own, destruction") {
  CUdevice gpu = device();
  CUcontext a, b, seen;
  SEE(cuCtxCreate_v4(&a, NULL, CU_CTX_SCHED_SPIN, gpu));
  SEE(cuCtxCreate_v4(&b, NULL, CU_CTX_MAP_HOST, gpu));
  CHECK(cuCtxGetCurrent(&seen));
  say("the last is current: %s", yes(seen == b));
  unsigned flags = 0;
  CHECK(cuCtxGetFlags(&flags));
  say("flags of the second without mapping: %u", flags & ~(unsigned)CU_CTX_MAP_HOST);
  CHECK(cuCtxPopCurrent_v2(&seen));
  say("popped the second: %s", yes(seen == b));
  CHECK(cuCtxGetFlags(&flags));
  say("schedule of the first: %u", flags & CU_CTX_SCHED_MASK);
  unsigned long long first = 0, second = 0;
  CHECK(cuCtxGetId(a, &first));
  CHECK(cuCtxGetId(b, &second));
  say("ids differ: %s", yes(first != second));
  // Modules, streams and memory belong to a context; memory is accessible from any context of the device.
  CUdeviceptr memory = allocate(64);
  CUmodule module = kernels();
  int value = 3;
  unsigned n = 16;
  void* parameters[] = {&memory, &value, &n};
  launch(kernel(module, "fill"), 1, 16, NULL, parameters);
  CHECK(cuCtxSynchronize());
  CHECK(cuCtxPushCurrent_v2(b));
  int out[16];
  SEE(cuMemcpyDtoH_v2(out, memory, sizeof out));
  say("read in the other context: %d", out[15]);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, 0));
  CUcontext of_stream;
  CHECK(cuStreamGetCtx(stream, &of_stream));
  say("the stream is of the second: %s", yes(of_stream == b));
  CHECK(cuCtxPopCurrent_v2(&seen));
  SEE(cuStreamSynchronize(stream));
  SEE(cuStreamDestroy_v2(stream));
  pthread_t thread;
  pthread_create(&thread, NULL, other_thread, a);
  pthread_join(thread, NULL);
  SEE(cuCtxDestroy_v2(b));
  CHECK(cuCtxGetCurrent(&seen));
  say("the first stays current: %s", yes(seen == a));
  SEE(cuCtxDestroy_v2(a));
  CHECK(cuCtxGetCurrent(&seen));
  say("then there is %s", seen ? "some" : "none");
  CUcontext main_one = primary();
  SEE(cuCtxDestroy_v2(main_one));
  SEE(cuCtxCreate_v4(&a, NULL, 0x4000, gpu));
  SEE(cuCtxCreate_v4(NULL, NULL, 0, gpu));
  SEE(cuCtxCreate_v4(&a, NULL, 0, 77));
}
