// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

/// Queries about resources, valid and invalid ones.
static void questions(CUdevice gpu) {
  CUdevResource all, parts[4], rest, other;
  SEE(cuDeviceGetDevResource(gpu, &all, CU_DEV_RESOURCE_TYPE_SM));
  SEE(cuDeviceGetDevResource(gpu, &other, CU_DEV_RESOURCE_TYPE_INVALID));
  SEE(cuDeviceGetDevResource(gpu, NULL, CU_DEV_RESOURCE_TYPE_SM));
  SEE(cuDeviceGetDevResource(77, &other, CU_DEV_RESOURCE_TYPE_SM));
  unsigned most = 0, count = 0;
  SEE(cuDevSmResourceSplitByCount(NULL, &most, &all, NULL, 0, 1));
  say("parts: %s", yes(most > 0));
  SEE(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 1));
  count = 1;
  SEE(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 1));
  say("%u part, nothing is lost: %s", count, yes(parts[0].sm.smCount + rest.sm.smCount == all.sm.smCount));
  SEE(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 100000));
  SEE(cuDevSmResourceSplitByCount(parts, NULL, &all, &rest, 0, 1));
  SEE(cuDevSmResourceSplitByCount(parts, &count, NULL, &rest, 0, 1));
  SEE(cuDevSmResourceSplitByCount(&other, &count, &parts[0], NULL, 0, 1));
  memset((char*)&all + sizeof all.type, 0, 64);
  SEE(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 1));
}

static CUgreenCtx make(CUdevice gpu, unsigned* multiprocessors) {
  CUdevResource all, part, rest;
  CHECK(cuDeviceGetDevResource(gpu, &all, CU_DEV_RESOURCE_TYPE_SM));
  unsigned count = 1;
  CHECK(cuDevSmResourceSplitByCount(&part, &count, &all, &rest, 0, 1));
  *multiprocessors = part.sm.smCount;
  CUdevResourceDesc description;
  SEE(cuDevResourceGenerateDesc(&description, &part, 1));
  CUgreenCtx green = NULL;
  SEE(cuGreenCtxCreate(&green, description, gpu, 0));
  SEE(cuGreenCtxCreate(NULL, description, gpu, CU_GREEN_CTX_DEFAULT_STREAM));
  SEE(cuGreenCtxCreate(&green, description, 77, CU_GREEN_CTX_DEFAULT_STREAM));
  SEE(cuGreenCtxCreate(&green, description, gpu, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

static void identity(CUgreenCtx green, CUcontext context, CUcontext primary, unsigned multiprocessors) {
  CUdevResource own;
  SEE(cuCtxGetDevResource(context, &own, CU_DEV_RESOURCE_TYPE_SM));
  say("of the context: %s", yes(own.sm.smCount == multiprocessors));
  SEE(cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_SM));
  say("of the green context: %s", yes(own.sm.smCount == multiprocessors));
  SEE(cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_INVALID));
  SEE(cuCtxGetDevResource(primary, &own, CU_DEV_RESOURCE_TYPE_SM));
  say("of the primary context: %s", yes((int)own.sm.smCount == attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
  unsigned long long id = 0, same = 0, other = 0;
  SEE(cuGreenCtxGetId(green, &id));
  SEE(cuCtxGetId(context, &same));
  SEE(cuCtxGetId(primary, &other));
  say("one number: %s, and not the primary's: %s", yes(id == same), yes(id != other));
}

static void streams(CUgreenCtx green, CUcontext context, CUcontext primary) {
  CUstream stream, plain;
  SEE(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0));
  SEE(cuGreenCtxStreamCreate(NULL, green, CU_STREAM_NON_BLOCKING, 0));
  SEE(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, -1));
  CHECK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  int priority = 0;
  unsigned flags = 0;
  CHECK(cuStreamGetPriority(stream, &priority));
  CHECK(cuStreamGetFlags(stream, &flags));
  say("priority %d, flags %u", priority, flags);
  CUgreenCtx of = NULL;
  CUcontext its = NULL;
  SEE(cuStreamGetCtx(stream, &its));
  say("its context is the green one's: %s", yes(its == context));
  SEE(cuStreamGetCtx_v2(stream, &its, &of));
  say("the primary: %s, and the green one: %s", yes(its == primary), yes(of == green));
  SEE(cuStreamGetCtx_v2(plain, &its, &of));
  say("the primary: %s, and none: %s", yes(its == primary), yes(of == NULL));
  SEE(cuStreamGetGreenCtx(plain, &of));
  say("of none: %s", yes(of == NULL));

  // With the primary context current.
  CUdeviceptr data = allocate(1024);
  CUmodule module = kernels();
  int value = 1;
  unsigned n = 256, word = 0;
  void* parameters[] = {&data, &value, &n};
  CHECK(cuMemsetD32Async(data, 0, 256, stream));
  launch(kernel(module, "fill"), 8, 32, stream, parameters);
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SEE(cuEventRecord(event, stream));
  SEE(cuStreamWaitEvent(plain, event, 0));
  SEE(cuStreamSynchronize(plain));
  CHECK(cuMemcpyDtoH_v2(&word, data + 1020, 4));
  say("filled: %u", word);
  SEE(cuGreenCtxRecordEvent(green, event));
  SEE(cuEventSynchronize(event));
  SEE(cuGreenCtxWaitEvent(green, event));

  // With the green context current: objects other than streams belong to the primary one.
  SEE(cuCtxSetCurrent(context));
  value = 2;
  launch(kernel(module, "fill"), 8, 32, NULL, parameters);
  SEE(cuCtxSynchronize());
  CUstream inside;
  SEE(cuStreamCreate(&inside, CU_STREAM_NON_BLOCKING));
  SEE(cuStreamGetGreenCtx(inside, &of));
  say("of the green one: %s", yes(of == green));
  CUdeviceptr made = allocate(64);
  CUevent another;
  CHECK(cuEventCreate(&another, 0));
  SEE(cuEventRecord(another, plain));
  SEE(cuEventRecord(event, inside));
  CUdevice device = -1;
  SEE(cuCtxGetDevice(&device));
  say("device %d", device);
  SEE(cuCtxSetCurrent(primary));
  CHECK(cuMemcpyDtoH_v2(&word, data + 1020, 4));
  say("filled: %u", word);
  SEE(cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_CONTEXT, made));
  say("memory of the primary: %s", yes(its == primary));
  SEE(cuStreamDestroy_v2(inside));
  SEE(cuStreamDestroy_v2(stream));
  SEE(cuGreenCtxDestroy(NULL));
  SEE(cuGreenCtxDestroy(green));
  // Everything that was created there still exists.
  SEE(cuEventSynchronize(another));
  SEE(cuMemsetD32_v2(made, 3, 16));
  SEE(cuMemFree_v2(made));
  CHECK(cuEventDestroy_v2(another));
  CHECK(cuEventDestroy_v2(event));
  CHECK(cuMemFree_v2(data));
  CHECK(cuModuleUnload(module));
  CHECK(cuStreamDestroy_v2(plain));
}

PROGRAM("green-parts", "what green contexts are refused, whose their streams are, and what belongs to the primary context") {
  const CUdevice gpu = device();
  CUcontext own = primary(), context;
  CUdevResource probe;
  if (cuDeviceGetDevResource(gpu, &probe, CU_DEV_RESOURCE_TYPE_SM) == CUDA_ERROR_NOT_SUPPORTED) skip("no green contexts");
  questions(gpu);
  unsigned multiprocessors = 0;
  CUgreenCtx green = make(gpu, &multiprocessors);
  SEE(cuCtxFromGreenCtx(&context, green));
  CUcontext current;
  CHECK(cuCtxGetCurrent(&current));
  say("still current: %s", yes(current == own));
  identity(green, context, own, multiprocessors);
  streams(green, context, own);
}
