// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "driver.h"

PROGRAM("vmm", "addresses reserved, memory made, mapped, given rights, shared as a file, at fixed addresses") {
  primary();
  if (!attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) skip("no virtual memory management");
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t granularity = 0;
  CHECK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  say("granularity is a power of two: %s", yes(granularity > 0 && (granularity & (granularity - 1)) == 0));
  const size_t size = granularity;
  CUdeviceptr range = 0, fixed = 0;
  SEE(cuMemAddressReserve(&range, 4 * size, 0, 0, 0));
  SEE(cuMemAddressFree(range, 4 * size));
  // An address that was free a moment ago can be requested.
  SEE(cuMemAddressReserve(&fixed, 4 * size, 0, range, 0));
  say("where it was asked for: %s", yes(fixed == range));
  CUmemGenericAllocationHandle first, second;
  SEE(cuMemCreate(&first, size, &prop, 0));
  SEE(cuMemCreate(&second, size, &prop, 0));
  SEE(cuMemMap(fixed, size, 0, first, 0));
  SEE(cuMemMap(fixed + size, size, 0, second, 0));
  CUmemAccessDesc access;
  memset(&access, 0, sizeof access);
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  SEE(cuMemSetAccess(fixed, 2 * size, &access, 1));
  unsigned long long flags = 0;
  SEE(cuMemGetAccess(&flags, &access.location, fixed));
  say("access %llu", flags);
  // One buffer over two pieces.
  CHECK(cuMemsetD32_v2(fixed + size - 16, 0xabcd, 8));
  unsigned out[8];
  CHECK(cuMemcpyDtoH_v2(out, fixed + size - 16, sizeof out));
  say("across the border: %x %x", out[0], out[7]);
  CUmodule module = kernels();
  CUdeviceptr target = fixed + size - 64;
  int value = 1;
  unsigned n = 32;
  void* parameters[] = {&target, &value, &n};
  launch(kernel(module, "fill"), 1, 32, NULL, parameters);
  CHECK(cuMemcpyDtoH_v2(out, target + 48, sizeof out));
  say("by a kernel: %u %u", out[0], out[7]);
  // The same memory at two addresses.
  SEE(cuMemMap(fixed + 2 * size, size, 0, first, 0));
  SEE(cuMemSetAccess(fixed + 2 * size, size, &access, 1));
  CHECK(cuMemsetD32_v2(fixed, 0x77, 1));
  CHECK(cuMemcpyDtoH_v2(out, fixed + 2 * size, 4));
  say("by the other address: %x", out[0]);
  CUmemGenericAllocationHandle retained;
  SEE(cuMemRetainAllocationHandle(&retained, (void*)(uintptr_t)(fixed + 100)));
  SEE(cuMemRelease(retained));
  CUmemAllocationProp seen;
  SEE(cuMemGetAllocationPropertiesFromHandle(&seen, first));
  say("of type %d on device %d", (int)seen.type, seen.location.id);
  SEE(cuMemRelease(first));
  SEE(cuMemUnmap(fixed, size));
  CHECK(cuMemcpyDtoH_v2(out, fixed + 2 * size, 4));
  say("still there: %x", out[0]);
  SEE(cuMemUnmap(fixed + 2 * size, size));
  SEE(cuMemUnmap(fixed + size, size));
  SEE(cuMemRelease(second));
  SEE(cuMemAddressFree(fixed, 4 * size));

  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  SEE(cuMemCreate(&first, size, &prop, 0));
  int file = -1;
  SEE(cuMemExportToShareableHandle(&file, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  say("a file: %s", yes(file >= 0));
  SEE(cuMemImportFromShareableHandle(&second, (void*)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(file);
  CHECK(cuMemAddressReserve(&range, 2 * size, 0, 0, 0));
  SEE(cuMemMap(range, size, 0, first, 0));
  SEE(cuMemMap(range + size, size, 0, second, 0));
  SEE(cuMemSetAccess(range, 2 * size, &access, 1));
  CHECK(cuMemsetD32_v2(range, 0x1357, 1));
  CHECK(cuMemcpyDtoH_v2(out, range + size, 4));
  say("through the imported one: %x", out[0]);
  SEE(cuMemUnmap(range, 2 * size));
  SEE(cuMemRelease(first));
  SEE(cuMemRelease(second));
  SEE(cuMemAddressFree(range, 2 * size));
  SEE(cuMemCreate(&second, 1000, &prop, 0));
  SEE(cuMemAddressReserve(&range, 1000, 0, 0, 0));
  // The driver dereferences any handle that it is given, so this one is valid.
  CHECK(cuMemCreate(&first, size, &prop, 0));
  SEE(cuMemMap(0x1000, size, 0, first, 0));
  SEE(cuMemRelease(first));
}
