// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "driver.h"

enum { kBytes = 4 << 20 };

static void* handle_of(int file) { return (void*)(intptr_t)file; }

static CUdeviceptr map(CUmemGenericAllocationHandle memory) {
  CUdeviceptr address;
  CUmemAccessDesc access;
  memset(&access, 0, sizeof access);
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  SEE(cuMemMap(address, kBytes, 0, memory, 0));
  SEE(cuMemSetAccess(address, kBytes, &access, 1));
  return address;
}

static void unmap(CUdeviceptr address) {
  SEE(cuMemUnmap(address, kBytes));
  SEE(cuMemAddressFree(address, kBytes));
}

static void other_process(void) {
  primary();
  const int file = receive_file(kPeer);
  CUmemGenericAllocationHandle memory, again, none;
  SEE(cuMemImportFromShareableHandle(&memory, handle_of(file), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  SEE(cuMemImportFromShareableHandle(&none, handle_of(0), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUmemAllocationProp properties;
  CHECK(cuMemGetAllocationPropertiesFromHandle(&properties, memory));
  say("type %d, location %d, handles %d", properties.type, properties.location.type, properties.requestedHandleTypes);
  int exported;
  SEE(cuMemExportToShareableHandle(&exported, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const CUdeviceptr address = map(memory);
  unsigned word = 0;
  CHECK(cuMemcpyDtoH_v2(&word, address + kBytes / 2, sizeof word));
  say("written by the other: %x", word);
  CHECK(cuMemsetD32_v2(address, 0xfee1, 4));
  CHECK(cuCtxSynchronize());
  SEE(cuMemImportFromShareableHandle(&again, handle_of(file), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const CUdeviceptr twice = map(again);
  CHECK(cuMemcpyDtoH_v2(&word, twice, sizeof word));
  say("the same memory again: %x", word);
  unmap(twice);
  SEE(cuMemRelease(again));
  SEE(cuMemRelease(memory));
  unmap(address);
}

PROGRAM("sharing-files", "memory without an address, handed to another process as a file") {
  if (is_part("other")) {
    other_process();
    return;
  }
  primary();
  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory;
  SEE(cuMemCreate(&memory, kBytes, &properties, 0));
  const CUdeviceptr address = map(memory);
  CHECK(cuMemsetD32_v2(address + kBytes / 2, 0xf11e, 1));
  CHECK(cuCtxSynchronize());
  int file;
  SEE(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

  int pid;
  const int peer = start_peer("other", &pid);
  send_file(peer, file);
  close(file);
  await_end(pid);
  unsigned word = 0;
  CHECK(cuMemcpyDtoH_v2(&word, address, sizeof word));
  say("written by the other: %x", word);
  SEE(cuMemRelease(memory));
  unmap(address);
}
