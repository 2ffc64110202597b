// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

/// Data that one process passes to the other in addition to the pool's file descriptor.
struct shared {
  CUmemPoolPtrExportData large, small, late, stranger, ball;
  CUipcEventHandle written, freed;
};

enum { kLargeBytes = 3 << 20, kSmallBytes = 1000, kTurns = 40 };
static const CUmemAllocationHandleType kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

static void* handle_of(int file) { return (void*)(intptr_t)file; }

static CUmemoryPool make_pool(CUmemAllocationHandleType types) {
  CUmemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.handleTypes = types;
  CUmemoryPool pool = NULL;
  CHECK(cuMemPoolCreate(&pool, &props));
  return pool;
}

static CUdeviceptr take(CUmemoryPool pool, size_t bytes, unsigned word, CUstream stream) {
  CUdeviceptr memory = 0;
  CHECK(cuMemAllocFromPoolAsync(&memory, bytes, pool, stream));
  CHECK(cuMemsetD32Async(memory, word, 4, stream));
  CHECK(cuStreamSynchronize(stream));
  return memory;
}

/// Prints whether the word there is the expected one.
static unsigned expect(unsigned word, CUdeviceptr at) {
  const unsigned is = word_at(at);
  if (is == word) return word;
  say("%x in place of %x", is, word);
  exit(1);
}

static void see_attributes(CUdeviceptr memory, CUmemoryPool pool) {
  CUmemoryPool of = NULL;
  unsigned long long types = 9;
  unsigned legacy = 9;
  size_t bytes = 0;
  CUdeviceptr base = 0;
  CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
  CHECK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory));
  CHECK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
  CHECK(cuMemGetAddressRange_v2(&base, &bytes, memory));
  say("of the pool: %s, handle types %llu, legacy %u, from its beginning: %s, %zu bytes", yes(of == pool), types, legacy,
      yes(base == memory), bytes);
}

static void what_an_opened_pool_cannot(CUmemoryPool pool, CUstream stream) {
  CUdeviceptr none = 0;
  SEE(cuMemAllocFromPoolAsync(&none, 512, pool, stream));
  SEE(cuDeviceSetMemPool(0, pool));
  int file = -1;
  SEE(cuMemPoolExportToShareableHandle(&file, pool, kFile, 0));
  cuuint64_t threshold = 1 << 20;
  SEE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  int follows = 1;
  SEE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follows));
  SEE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follows));
  SEE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  SEE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &threshold));
  SEE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &threshold));
  SEE(cuMemPoolTrimTo(pool, 0));
  CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SEE(cuMemPoolGetAccess(&access, pool, &location));
  say("access %d", access);
}

static void what_cannot_be_opened(CUmemoryPool pool, int file, struct shared* shared) {
  CUmemoryPool none = NULL;
  CUdeviceptr nowhere = 0;
  SEE(cuMemPoolImportFromShareableHandle(&none, handle_of(0), kFile, 0));
  SEE(cuMemPoolImportFromShareableHandle(&none, handle_of(file), kFile, 1));
  SEE(cuMemPoolImportFromShareableHandle(&none, handle_of(file), CU_MEM_HANDLE_TYPE_NONE, 0));
  SEE(cuMemPoolImportFromShareableHandle(NULL, handle_of(file), kFile, 0));
  SEE(cuMemPoolImportPointer(&nowhere, pool, NULL));
  SEE(cuMemPoolImportPointer(NULL, pool, &shared->large));
  SEE(cuMemPoolImportPointer(&nowhere, make_pool(kFile), &shared->large));
  SEE(cuMemPoolImportPointer(&nowhere, pool, &shared->stranger));
  CUmemPoolPtrExportData garbage;
  memset(&garbage, 0x5a, sizeof garbage);
  SEE(cuMemPoolImportPointer(&nowhere, pool, &garbage));
}

static void use_memory(CUmemoryPool pool, struct shared* shared, CUstream stream) {
  CUdeviceptr large = 0, small = 0;
  CUevent written, freed;
  CHECK(cuIpcOpenEventHandle(&written, shared->written));
  CHECK(cuIpcOpenEventHandle(&freed, shared->freed));
  SEE(cuMemPoolImportPointer(&large, pool, &shared->large));
  SEE(cuMemPoolImportPointer(&small, pool, &shared->small));
  see_attributes(large, pool);
  see_attributes(small, pool);
  CHECK(cuStreamWaitEvent(stream, written, 0));
  CHECK(cuStreamSynchronize(stream));
  say("written by the other: %x %x", expect(0xb16, large), expect(0x5a11, small));
  CUipcMemHandle legacy;
  SEE(cuIpcGetMemHandle(&legacy, large));
  SEE(cuIpcCloseMemHandle(large));
  CUmemPoolPtrExportData again;
  SEE(cuMemPoolExportPointer(&again, large));

  CUmodule module = kernels();
  int value = 7;
  unsigned n = 250;
  void* parameters[] = {&small, &value, &n};
  launch(kernel(module, "fill"), 8, 32, stream, parameters);
  CHECK(cuMemsetD32Async(large, 0xbac, 4, stream));
  SEE(cuMemFreeAsync(small, stream));
  SEE(cuMemFreeAsync(large, stream));
  CHECK(cuEventRecord(freed, stream));
  CHECK(cuStreamSynchronize(stream));
  SEE(cuMemFreeAsync(small, stream));
  SEE(cuMemFree_v2(large));
  CHECK(cuModuleUnload(module));
  CHECK(cuEventDestroy_v2(written));
  CHECK(cuEventDestroy_v2(freed));
}

/// Doubles the other process's values, again and again. Only events order the accesses.
static void play_back(CUmemoryPool pool, struct shared* shared, CUstream stream) {
  CUdeviceptr ball = 0;
  CUevent written, freed;
  CHECK(cuIpcOpenEventHandle(&written, shared->written));
  CHECK(cuIpcOpenEventHandle(&freed, shared->freed));
  CHECK(cuMemPoolImportPointer(&ball, pool, &shared->ball));
  CUmodule module = kernels();
  unsigned n = 1;
  void* parameters[] = {&ball, &ball, &ball, &n};
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    await_turn(kPeer);
    CHECK(cuStreamWaitEvent(stream, written, 0));
    launch(kernel(module, "add"), 1, 32, stream, parameters);
    CHECK(cuEventRecord(freed, stream));
    give_turn(kPeer);
  }
  CHECK(cuMemFreeAsync(ball, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuModuleUnload(module));
  CHECK(cuEventDestroy_v2(written));
  CHECK(cuEventDestroy_v2(freed));
}

static void play(CUdeviceptr ball, CUevent written, CUevent freed, CUstream stream, int peer) {
  unsigned wrong = 0;
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    CHECK(cuMemsetD32Async(ball, turn + 1, 1, stream));
    CHECK(cuEventRecord(written, stream));
    give_turn(peer);
    await_turn(peer);
    CHECK(cuStreamWaitEvent(stream, freed, 0));
    unsigned word = 0;
    CHECK(cuMemcpyDtoHAsync_v2(&word, ball, sizeof word, stream));
    CHECK(cuStreamSynchronize(stream));
    wrong += word != 2 * (turn + 1);
  }
  say("turns that went wrong: %u", wrong);
  if (wrong > 0) exit(1);
}

/// The pool is destroyed before its memory, and its file may be opened again.
static void open_again(CUmemoryPool pool, int file, struct shared* shared) {
  CUmemoryPool second = NULL;
  CUdeviceptr large = 0;
  SEE(cuMemPoolImportFromShareableHandle(&second, handle_of(file), kFile, 0));
  say("another pool: %s", yes(second != pool));
  SEE(cuMemPoolImportPointer(&large, second, &shared->large));
  SEE(cuMemPoolDestroy(second));
  say("of a pool that has ended: %x", expect(0xbac, large));
  SEE(cuMemFree_v2(large));
}

static void opening_process(void) {
  struct shared shared;
  primary();
  const int file = receive_file(kPeer);
  get(kPeer, &shared, sizeof shared);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemoryPool pool = NULL;
  SEE(cuMemPoolImportFromShareableHandle(&pool, handle_of(file), kFile, 0));
  what_an_opened_pool_cannot(pool, stream);
  what_cannot_be_opened(pool, file, &shared);
  use_memory(pool, &shared, stream);
  open_again(pool, file, &shared);
  give_turn(kPeer);
  play_back(pool, &shared, stream);
  // The other process frees memory here that no process has open, and allocates it again.
  await_turn(kPeer);
  CUdeviceptr late = 0;
  SEE(cuMemPoolImportPointer(&late, pool, &shared.late));
  say("left open: %x", expect(0x1a7e, late));
  SEE(cuMemPoolDestroy(pool));
}

/// Shares memory and waits to be killed.
static void exporting_process(void) {
  primary();
  CUmemoryPool pool = make_pool(kFile);
  const CUdeviceptr memory = take(pool, kLargeBytes, 0xdead, NULL);
  int file = -1;
  CUmemPoolPtrExportData data;
  CHECK(cuMemPoolExportToShareableHandle(&file, pool, kFile, 0));
  CHECK(cuMemPoolExportPointer(&data, memory));
  send_file(kPeer, file);
  put(kPeer, &data, sizeof data);
  await_turn(kPeer);
}

static void survive_a_killed_process(void) {
  int pid;
  const int peer = start_peer("exporter", &pid);
  CUmemPoolPtrExportData data;
  const int file = receive_file(peer);
  get(peer, &data, sizeof data);
  CUmemoryPool pool = NULL;
  CUdeviceptr left = 0;
  SEE(cuMemPoolImportFromShareableHandle(&pool, handle_of(file), kFile, 0));
  SEE(cuMemPoolImportPointer(&left, pool, &data));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  say("whoever shared it was killed: %x", expect(0xdead, left));
  SEE(cuMemFree_v2(left));
  SEE(cuMemPoolDestroy(pool));
}

static void what_cannot_be_shared(CUmemoryPool pool, CUdeviceptr memory, CUstream stream) {
  CUmemoryPool fallback, private_pool = make_pool(CU_MEM_HANDLE_TYPE_NONE);
  int file = -1;
  SEE(cuMemPoolExportToShareableHandle(&file, private_pool, kFile, 0));
  CHECK(cuDeviceGetDefaultMemPool(&fallback, 0));
  SEE(cuMemPoolExportToShareableHandle(&file, fallback, kFile, 0));
  SEE(cuMemPoolExportToShareableHandle(&file, pool, kFile, 1));
  SEE(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_NONE, 0));
  SEE(cuMemPoolExportToShareableHandle(NULL, pool, kFile, 0));
  CUmemPoolPtrExportData data;
  const CUdeviceptr own = take(private_pool, 512, 1, stream), ordinary = allocate(512);
  SEE(cuMemPoolExportPointer(&data, own));
  SEE(cuMemPoolExportPointer(&data, ordinary));
  SEE(cuMemPoolExportPointer(&data, 0x12345));
  SEE(cuMemPoolExportPointer(NULL, memory));
  CUipcMemHandle legacy;
  SEE(cuIpcGetMemHandle(&legacy, memory));
  CHECK(cuMemFreeAsync(own, stream));
  CHECK(cuMemFree_v2(ordinary));
  CHECK(cuMemPoolDestroy(private_pool));
}

static void share(void) {
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemoryPool pool = make_pool(kFile), other = make_pool(kFile);
  const CUdeviceptr large = take(pool, kLargeBytes, 0xb16, stream), small = take(pool, kSmallBytes, 0x5a11, stream);
  const CUdeviceptr late = take(pool, kLargeBytes, 0x1a7e, stream), stranger = take(other, kLargeBytes, 0x57a, stream);
  const CUdeviceptr ball = take(pool, kSmallBytes, 0, stream);
  see_attributes(large, pool);
  what_cannot_be_shared(pool, large, stream);
  int file = -1;
  struct shared shared;
  SEE(cuMemPoolExportToShareableHandle(&file, pool, kFile, 0));
  SEE(cuMemPoolExportPointer(&shared.large, large));
  SEE(cuMemPoolExportPointer(&shared.small, small));
  SEE(cuMemPoolExportPointer(&shared.late, late));
  SEE(cuMemPoolExportPointer(&shared.stranger, stranger));
  CHECK(cuMemPoolExportPointer(&shared.ball, ball));
  CUevent written, freed;
  CHECK(cuEventCreate(&written, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&freed, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventRecord(written, stream));
  CHECK(cuIpcGetEventHandle(&shared.written, written));
  CHECK(cuIpcGetEventHandle(&shared.freed, freed));

  int pid;
  const int peer = start_peer("opener", &pid);
  send_file(peer, file);
  close(file);
  put(peer, &shared, sizeof shared);
  await_turn(peer);
  CHECK(cuStreamWaitEvent(stream, freed, 0));
  unsigned filled[250];
  CHECK(cuMemcpyDtoHAsync_v2(filled, small, sizeof filled, stream));
  CHECK(cuStreamSynchronize(stream));
  say("written by the other: %x, %u %u", expect(0xbac, large), filled[0], filled[249]);
  SEE(cuMemFreeAsync(small, stream));
  SEE(cuMemFreeAsync(large, stream));
  CHECK(cuStreamSynchronize(stream));
  play(ball, written, freed, stream, peer);
  give_turn(peer);
  await_end(pid);
  CHECK(cuMemFreeAsync(ball, stream));
  say("still there: %x", expect(0x1a7e, late));
  SEE(cuMemFree_v2(late));
  CHECK(cuMemFreeAsync(stranger, stream));
  SEE(cuMemPoolDestroy(pool));
  CHECK(cuMemPoolDestroy(other));
  CHECK(cuEventDestroy_v2(written));
  CHECK(cuEventDestroy_v2(freed));
}

PROGRAM("sharing-pools", "a pool of one process in another, by a file, and its memory, by data") {
  if (is_part("opener")) {
    opening_process();
    return;
  }
  if (is_part("exporter")) {
    exporting_process();
    return;
  }
  primary();
  if (!(attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) & kFile)) skip("no pools as files");
  share();
  survive_a_killed_process();
}
