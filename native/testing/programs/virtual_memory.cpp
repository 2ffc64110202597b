// SPDX-License-Identifier: Apache-2.0
// Reserved addresses, memory made and mapped, as allocators with growing segments use them.
#include <sys/mman.h>
#include <unistd.h>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

CUmemAllocationProp deviceMemory() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 0;
  return prop;
}

void allow(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemSetAccess(address, bytes, &access, 1));
}

template <typename T>
T ask(CUpointer_attribute what, CUdeviceptr address) {
  T value{};
  OK(cuPointerGetAttribute(&value, what, address));
  return value;
}

size_t freeBytes() {
  size_t free = 0, total = 0;
  OK(cuMemGetInfo_v2(&free, &total));
  return free;
}

void growAndShrink(size_t granule) {
  const CUmemAllocationProp prop = deviceMemory();
  constexpr size_t kPieces = 6;
  const size_t all = kPieces * granule;
  const size_t before = freeBytes();
  CUdeviceptr base = 0;
  OK(cuMemAddressReserve(&base, all, 0, 0, 0));
  // Nothing of this process can be mapped there.
  void* got = ::mmap(reinterpret_cast<void*>(base), all, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | 0x100000, -1, 0);
  REQUIRE(got == MAP_FAILED);
  for (size_t piece = 0; piece < kPieces; ++piece) {
    CUmemGenericAllocationHandle memory = 0;
    OK(cuMemCreate(&memory, granule, &prop, 0));
    OK(cuMemMap(base + piece * granule, granule, 0, memory, 0));
    OK(cuMemRelease(memory));
  }
  allow(base, all);
  REQUIRE(before - freeBytes() == all);
  const size_t words = all / sizeof(uint32_t);
  OK(cuMemsetD32_v2(base, 40, words));
  launchAdd(base, 2, static_cast<uint32_t>(words));
  requireWords(base, 42, words);
  // Across the border between two pieces, from and to ordinary memory.
  std::vector<uint32_t> host(granule / sizeof(uint32_t), 7);
  OK(cuMemcpyHtoD_v2(base + granule / 2, host.data(), granule));
  requireWords(base + granule / 2, 7, host.size());
  requireWords(base, 42, granule / 2 / sizeof(uint32_t));

  REQUIRE(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, base + granule) == base);
  REQUIRE(ask<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, base + granule) == all);
  REQUIRE(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, base + granule + 5) == base + granule);
  REQUIRE(ask<size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, base + granule + 5) == granule);
  REQUIRE(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base) == CU_MEMORYTYPE_DEVICE);
  REQUIRE(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base) == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(base));

  // The middle is unmapped and mapped again.
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + granule / 2, granule));
  OK(cuMemUnmap(base + 2 * granule, 2 * granule));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, all));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, all));
  REQUIRE(before - freeBytes() == all - 2 * granule);
  CUmemGenericAllocationHandle memory = 0;
  OK(cuMemCreate(&memory, 2 * granule, &prop, 0));
  OK(cuMemMap(base + 2 * granule, 2 * granule, 0, memory, 0));
  allow(base + 2 * granule, 2 * granule);
  requireWords(base + 5 * granule, 42, granule / sizeof(uint32_t));
  OK(cuMemsetD32_v2(base + 2 * granule, 1, granule / 2));
  launchAdd(base, 0, static_cast<uint32_t>(words));
  OK(cuCtxSynchronize());  // an unmap need not wait
  OK(cuMemUnmap(base, all));
  OK(cuMemRelease(memory));
  OK(cuMemAddressFree(base, all));
  REQUIRE(freeBytes() == before);
}

void addressesOfChoice(size_t granule) {
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, 8 * granule, 4 * granule, 0, 0));
  REQUIRE(place % (4 * granule) == 0);
  OK(cuMemAddressFree(place, 8 * granule));
  CUdeviceptr again = 0;
  OK(cuMemAddressReserve(&again, 8 * granule, 0, place, 0));
  REQUIRE(again == place);
  CUdeviceptr other = 0;
  OK(cuMemAddressReserve(&other, granule, 0, place, 0));
  REQUIRE(other < place || other >= place + 8 * granule);
  OK(cuMemAddressFree(other, granule));
  OK(cuMemAddressFree(again, 8 * granule));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&place, 0, 0, 0, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(again, 8 * granule));
}

void handles(size_t granule) {
  CUmemAllocationProp prop = deviceMemory();
  const size_t before = freeBytes();
  CUmemGenericAllocationHandle memory = 0;
  OK(cuMemCreate(&memory, granule, &prop, 0));
  REQUIRE(before - freeBytes() == granule);
  CUmemAllocationProp told{};
  OK(cuMemGetAllocationPropertiesFromHandle(&told, memory));
  REQUIRE(told.location.id == 0 && told.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, granule, 0, 0, 0));
  OK(cuMemMap(place, granule, 0, memory, 0));
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  unsigned long long flags = 9;
  OK(cuMemGetAccess(&flags, &here, place));
  REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  allow(place, granule);
  OK(cuMemGetAccess(&flags, &here, place + granule - 1));
  REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  OK(cuMemRelease(memory));
  // The memory lives on in its mapping, and gets a handle again from there.
  CUmemGenericAllocationHandle retained = 0;
  OK(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(place + 100)));
  OK(cuMemsetD8_v2(place, 0x11, granule));
  OK(cuCtxSynchronize());
  OK(cuMemUnmap(place, granule));
  REQUIRE(before - freeBytes() == granule);
  OK(cuMemMap(place, granule, 0, retained, 0));
  allow(place, granule);
  requireWords(place, 0x11111111, granule / sizeof(uint32_t));
  OK(cuMemUnmap(place, granule));
  OK(cuMemRelease(retained));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(retained));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(place, granule, 0, retained, 0));
  OK(cuMemAddressFree(place, granule));
  REQUIRE(freeBytes() == before);
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&memory, before + granule, &prop, 0));
}

void files(size_t granule) {
  int supported = 0;
  OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
  if (!supported) return;
  CUmemAllocationProp prop = deviceMemory();
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const size_t before = freeBytes();
  CUmemGenericAllocationHandle memory = 0;
  OK(cuMemCreate(&memory, granule, &prop, 0));
  int file = -1;
  OK(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemRelease(memory));
  const int copy = ::dup(file);
  ::close(file);
  // The file keeps the memory alive.
  CUmemGenericAllocationHandle imported = 0;
  OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(copy)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUdeviceptr two = 0;
  OK(cuMemAddressReserve(&two, 2 * granule, 0, 0, 0));
  OK(cuMemMap(two, granule, 0, imported, 0));
  OK(cuMemMap(two + granule, granule, 0, imported, 0));
  allow(two, 2 * granule);
  OK(cuMemsetD32_v2(two, 5, granule / sizeof(uint32_t)));
  launchAdd(two + granule, 6, static_cast<uint32_t>(granule / sizeof(uint32_t)));
  requireWords(two, 11, granule / sizeof(uint32_t));
  OK(cuMemUnmap(two, 2 * granule));
  OK(cuMemAddressFree(two, 2 * granule));
  ::close(copy);
  OK(cuMemRelease(imported));
  REQUIRE(freeBytes() == before);
}

}  // namespace

void virtualMemory() {
  useDevice();
  const CUmemAllocationProp prop = deviceMemory();
  size_t granule = 0;
  OK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  REQUIRE(granule >= 4096 && granule % 4096 == 0);
  for (int round = 0; round < 3; ++round) growAndShrink(granule);
  addressesOfChoice(granule);
  handles(granule);
  files(granule);
}

}  // namespace millpond::programs
