// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("pools", "memory in stream order by the driver: its pool, pools of one's own, memory across streams") {
  primary();
  if (!attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) skip("no memory pools");
  CUstream a, b;
  CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory = 0;
  SEE(cuMemAllocAsync(&memory, 1 << 16, a));
  CHECK(cuMemsetD32Async(memory, 0x42, 1 << 14, a));
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventRecord(event, a));
  CHECK(cuStreamWaitEvent(b, event, 0));
  unsigned out[2];
  CHECK(cuMemcpyDtoHAsync_v2(out, memory + 65528, 8, b));
  SEE(cuMemFreeAsync(memory, b));
  CHECK(cuStreamSynchronize(b));
  say("seen in the other stream: %x", out[1]);
  CUmemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.maxSize = 8 << 20;
  CUmemoryPool pool, fallback;
  SEE(cuMemPoolCreate(&pool, &props));
  SEE(cuMemAllocFromPoolAsync(&memory, 1 << 20, pool, a));
  CUmemoryPool of;
  SEE(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
  say("of the pool: %s", yes(of == pool));
  CUdeviceptr more = 0;
  SEE(cuMemAllocFromPoolAsync(&more, 64 << 20, pool, a));
  int is = 9;
  SEE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &is));
  say("opportunistic %d", is);
  is = 0;
  SEE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &is));
  SEE(cuMemFreeAsync(memory, a));
  // The pool is destroyed once its memory has been freed.
  SEE(cuMemPoolDestroy(pool));
  CHECK(cuStreamSynchronize(a));
  SEE(cuDeviceGetDefaultMemPool(&fallback, 0));
  SEE(cuMemPoolDestroy(fallback));
  SEE(cuDeviceGetMemPool(&of, 0));
  say("the default one: %s", yes(of == fallback));
  SEE(cuMemAllocAsync(&memory, 0, a));
  SEE(cuMemAllocAsync(NULL, 16, a));
  SEE(cuMemFreeAsync(0x12345, a));
}
