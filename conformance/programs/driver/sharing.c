// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

struct shared {
  CUipcMemHandle large, small, other;
  CUipcEventHandle event;
};

enum { kLargeBytes = 3 << 20, kSmallBytes = 1000 };

/// Pointer attributes, as numbers.
static void see_attribute(const char* name, CUpointer_attribute which, CUdeviceptr at) {
  unsigned long long value = 0;
  CHECK(cuPointerGetAttribute(&value, which, at));
  say("%s: %llu", name, value);
}

static void open_memory(const struct shared* shared) {
  CUdeviceptr large = 0, again = 0, small = 0, base = 0, none = 0;
  size_t bytes = 0;
  SEE(cuIpcOpenMemHandle_v2(&large, shared->large, 0));
  SEE(cuIpcOpenMemHandle_v2(&large, shared->large, 2));
  SEE(cuIpcOpenMemHandle_v2(NULL, shared->large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SEE(cuIpcOpenMemHandle_v2(&large, shared->large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SEE(cuIpcOpenMemHandle_v2(&again, shared->large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  say("opened twice, the same address: %s", yes(large == again));
  SEE(cuMemGetAddressRange_v2(&base, &bytes, large + 100));
  say("from its beginning: %s, %zu bytes: %x", yes(base == large), bytes, word_at(large));
  SEE(cuIpcOpenMemHandle_v2(&small, shared->small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SEE(cuMemGetAddressRange_v2(&base, &bytes, small));
  say("small memory from its beginning: %s, %zu bytes: %x", yes(base == small), bytes, word_at(small));
  see_attribute("type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, large);
  see_attribute("can be shared", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, large);
  see_attribute("size", CU_POINTER_ATTRIBUTE_RANGE_SIZE, large);
  see_attribute("mapped", CU_POINTER_ATTRIBUTE_MAPPED, large);
  CUipcMemHandle handle;
  SEE(cuIpcGetMemHandle(&handle, large));
  SEE(cuMemFree_v2(large));
  SEE(cuIpcCloseMemHandle(large + 64));
  SEE(cuIpcCloseMemHandle(large));
  say("still open: %x", word_at(large));
  SEE(cuIpcCloseMemHandle(large));
  unsigned word;
  SEE(cuMemcpyDtoH_v2(&word, large, sizeof word));
  SEE(cuIpcCloseMemHandle(large));
  SEE(cuIpcCloseMemHandle(small));
  const CUdeviceptr own = allocate(64);
  SEE(cuIpcCloseMemHandle(own));
  SEE(cuIpcCloseMemHandle(none));
  CHECK(cuMemFree_v2(own));
  memset(&handle, 0x5a, sizeof handle);
  SEE(cuIpcOpenMemHandle_v2(&none, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static void write_memory(const struct shared* shared) {
  CUdeviceptr other = 0;
  SEE(cuIpcOpenMemHandle_v2(&other, shared->other, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CUmodule module = kernels();
  int value = 7;
  unsigned n = 250;
  void* parameters[] = {&other, &value, &n};
  launch(kernel(module, "fill"), 8, 32, NULL, parameters);
  SEE(cuCtxSynchronize());
  SEE(cuIpcCloseMemHandle(other));
  CHECK(cuModuleUnload(module));
}

static void open_event(const struct shared* shared, int peer) {
  CUevent event, again;
  CUipcEventHandle handle;
  memset(&handle, 0x5a, sizeof handle);
  SEE(cuIpcOpenEventHandle(&event, handle));
  SEE(cuIpcOpenEventHandle(NULL, shared->event));
  SEE(cuIpcOpenEventHandle(&event, shared->event));
  SEE(cuIpcOpenEventHandle(&again, shared->event));
  say("two events: %s", yes(event != again));
  SEE(cuIpcGetEventHandle(&handle, event));
  SEE(cuEventQuery(event));
  SEE(cuEventRecord(event, NULL));
  SEE(cuEventSynchronize(event));
  give_turn(peer);
  await_turn(peer);
  SEE(cuEventQuery(event));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SEE(cuStreamWaitEvent(stream, event, 0));
  SEE(cuStreamQuery(stream));
  give_turn(peer);
  SEE(cuStreamSynchronize(stream));
  SEE(cuEventSynchronize(event));
  SEE(cuEventQuery(event));
  CHECK(cuStreamDestroy_v2(stream));
  SEE(cuEventDestroy_v2(event));
  SEE(cuEventDestroy_v2(again));
}

static void other_process(void) {
  const int peer = kPeer;
  struct shared shared;
  primary();
  get(peer, &shared, sizeof shared);
  open_memory(&shared);
  write_memory(&shared);
  open_event(&shared, peer);
  give_turn(peer);
  await_turn(peer);
  CUdeviceptr gone = 0;
  SEE(cuIpcOpenMemHandle_v2(&gone, shared.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

/// Shares memory and waits to be killed.
static void exporting_process(void) {
  primary();
  const CUdeviceptr memory = allocate(kLargeBytes);
  CHECK(cuMemsetD32_v2(memory, 0xdead, 4));
  CHECK(cuCtxSynchronize());
  CUipcMemHandle handle;
  CHECK(cuIpcGetMemHandle(&handle, memory));
  put(kPeer, &handle, sizeof handle);
  await_turn(kPeer);
}

/// Memory from cuMemCreate, which is shared as a file descriptor.
static CUdeviceptr mapped(void) {
  CUmemAllocationProp properties;
  CUmemAccessDesc access;
  memset(&properties, 0, sizeof properties);
  memset(&access, 0, sizeof access);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemGenericAllocationHandle memory;
  CUdeviceptr address;
  CHECK(cuMemCreate(&memory, 2 << 20, &properties, 0));
  CHECK(cuMemAddressReserve(&address, 2 << 20, 0, 0, 0));
  CHECK(cuMemMap(address, 2 << 20, 0, memory, 0));
  CHECK(cuMemSetAccess(address, 2 << 20, &access, 1));
  return address;
}

static void what_cannot_be_shared(CUstream stream) {
  CUipcMemHandle handle;
  CUdeviceptr pooled, managed;
  void* host;
  CHECK(cuMemAllocAsync(&pooled, 4096, stream));
  CHECK(cuStreamSynchronize(stream));
  SEE(cuIpcGetMemHandle(&handle, pooled));
  CHECK(cuMemFreeAsync(pooled, stream));
  CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  SEE(cuIpcGetMemHandle(&handle, managed));
  CHECK(cuMemFree_v2(managed));
  CHECK(cuMemHostAlloc(&host, 4096, 0));
  SEE(cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)host));
  CHECK(cuMemFreeHost(host));
  SEE(cuIpcGetMemHandle(&handle, 0));
  SEE(cuIpcGetMemHandle(&handle, mapped()));
  CUevent event;
  CUipcEventHandle own;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SEE(cuIpcGetEventHandle(&own, event));
  CHECK(cuEventDestroy_v2(event));
  SEE(cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

static void await_release(void* end) { await_turn(*(const int*)end); }

static void own_handles(const struct shared* shared, CUdeviceptr large) {
  CUipcMemHandle again;
  CHECK(cuIpcGetMemHandle(&again, large));
  say("the same handle again: %s", yes(memcmp(&again, &shared->large, sizeof again) == 0));
  CHECK(cuIpcGetMemHandle(&again, large + 512));
  say("the same handle from within: %s", yes(memcmp(&again, &shared->large, sizeof again) == 0));
  SEE(cuIpcGetMemHandle(NULL, large));
  see_attribute("can be shared", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, large);
  CUdeviceptr opened;
  SEE(cuIpcOpenMemHandle_v2(&opened, shared->large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CUevent event;
  SEE(cuIpcOpenEventHandle(&event, shared->event));
}

PROGRAM("sharing", "memory and events of one process in another, by handles") {
  if (is_part("other")) {
    other_process();
    return;
  }
  if (is_part("exporter")) {
    exporting_process();
    return;
  }
  primary();
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  what_cannot_be_shared(stream);
  const CUdeviceptr large = allocate(kLargeBytes), small = allocate(kSmallBytes), other = allocate(kSmallBytes);
  CHECK(cuMemsetD32_v2(large, 0xb16, 4));
  CHECK(cuMemsetD32_v2(small, 0x5a11, 4));
  CHECK(cuCtxSynchronize());
  struct shared shared;
  SEE(cuIpcGetMemHandle(&shared.large, large));
  SEE(cuIpcGetMemHandle(&shared.small, small));
  SEE(cuIpcGetMemHandle(&shared.other, other));
  CUevent event;
  SEE(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  SEE(cuIpcGetEventHandle(&shared.event, event));
  own_handles(&shared, large);

  pid_t pid;
  const int peer = start_peer("other", &pid);
  int gate[2];
  if (pipe(gate) != 0) exit(1);
  put(peer, &shared, sizeof shared);
  await_turn(peer);
  unsigned filled[250];
  CHECK(cuMemcpyDtoH_v2(filled, other, sizeof filled));
  say("written by the other: %u %u", filled[0], filled[249]);
  CHECK(cuLaunchHostFunc(stream, await_release, &gate[0]));
  CHECK(cuEventRecord(event, stream));
  say("not yet: %s", yes(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY));
  give_turn(peer);
  await_turn(peer);
  give_turn(gate[1]);
  CHECK(cuStreamSynchronize(stream));
  await_turn(peer);
  SEE(cuMemFree_v2(large));
  SEE(cuCtxSynchronize());
  give_turn(peer);
  await_end(pid);

  const int exporter = start_peer("exporter", &pid);
  CUipcMemHandle handle;
  get(exporter, &handle, sizeof handle);
  CUdeviceptr left = 0;
  SEE(cuIpcOpenMemHandle_v2(&left, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  say("whoever shared it was killed: %x", word_at(left));
  SEE(cuIpcCloseMemHandle(left));
  CHECK(cuEventDestroy_v2(event));
  CHECK(cuMemFree_v2(small));
  CHECK(cuMemFree_v2(other));
}
