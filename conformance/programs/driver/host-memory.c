// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("host-memory", "pinned and registered memory of the driver: flags, pointers, attributes of them") {
  primary();
  int* pinned = NULL;
  SEE(cuMemHostAlloc((void**)&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
  unsigned flags = 0;
  CHECK(cuMemHostGetFlags(&flags, pinned));
  say("flags %u", flags);
  CUdeviceptr mapped = 0;
  SEE(cuMemHostGetDevicePointer_v2(&mapped, pinned, 0));
  for (int i = 0; i < 1024; ++i) pinned[i] = i;
  CUdeviceptr device_memory = allocate(4096);
  CHECK(cuMemcpyHtoDAsync_v2(device_memory, pinned, 4096, NULL));
  CHECK(cuCtxSynchronize());
  memset(pinned, 0, 4096);
  CHECK(cuMemcpyDtoHAsync_v2(pinned, device_memory, 4096, NULL));
  CHECK(cuCtxSynchronize());
  say("there and back: %d %d", pinned[1], pinned[1023]);
  CUmemorytype type = (CUmemorytype)9;
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
  say("pinned is of type %d", (int)type);
  void* host = NULL;
  CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, (CUdeviceptr)(uintptr_t)(pinned + 3)));
  say("its host pointer: %s", yes(host == pinned + 3));
  SEE(cuMemFreeHost(pinned));
  SEE(cuMemFreeHost(pinned));
  SEE(cuMemAllocHost_v2((void**)&pinned, 100));
  SEE(cuMemFreeHost(pinned));
  int* own = aligned_alloc(4096, 16384);
  for (int i = 0; i < 4096; ++i) own[i] = 3 * i;
  SEE(cuMemHostRegister_v2(own, 16384, CU_MEMHOSTREGISTER_DEVICEMAP));
  SEE(cuMemHostRegister_v2(own + 100, 400, 0));
  CHECK(cuMemcpyHtoDAsync_v2(device_memory, own, 4096, NULL));
  own[0] = 1;
  SEE(cuMemHostUnregister(own));
  SEE(cuMemHostUnregister(own));
  int seen = 0;
  CHECK(cuMemcpyDtoH_v2(&seen, device_memory + 40, 4));
  say("copied: %d", seen);
  free(own);
  SEE(cuMemHostAlloc((void**)&pinned, 0, 0));
  SEE(cuMemHostAlloc((void**)&pinned, 16, 0x100));
  SEE(cuMemHostGetDevicePointer_v2(&mapped, &flags, 0));
}
