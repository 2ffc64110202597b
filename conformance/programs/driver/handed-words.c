// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <time.h>

#include "driver.h"

enum { kCount = 32, kRounds = 6, kRegisteredBytes = 8192 };

/// Words that host and device pass to each other in shared memory, and the data that these words announce.
struct shared {
  volatile uint32_t request, answer;
  volatile uint64_t wide;
  int data[kCount];
};

static CUfunction add;
static CUdeviceptr out;

/// Waits for a word without calling the driver.
static bool comes_to(const volatile uint32_t* word, uint32_t value) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    if (*word == value) return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - start.tv_sec < 30);
  return false;
}

static CUdeviceptr of(const struct shared* base, CUdeviceptr device, const volatile void* member) {
  return device + (CUdeviceptr)((const volatile char*)member - (const volatile char*)base);
}

static void add_data(struct shared* memory, CUdeviceptr device, CUstream stream) {
  CUdeviceptr data = of(memory, device, memory->data);
  unsigned n = kCount;
  void* parameters[] = {&data, &data, &out, &n};
  launch(add, 1, kCount, stream, parameters);
}

static int sum(void) {
  int values[kCount], all = 0;
  CHECK(cuMemcpyDtoH_v2(values, out, sizeof values));
  for (int i = 0; i < kCount; ++i) all += values[i];
  return all;
}

static void hand_words(const char* what, struct shared* memory) {
  CUdeviceptr device;
  CUstream stream;
  CHECK(cuMemHostGetDevicePointer_v2(&device, memory, 0));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  say("-- %s", what);
  const CUdeviceptr request = of(memory, device, &memory->request), answer = of(memory, device, &memory->answer);
  memory->request = 7;
  SEE(cuStreamWaitValue32_v2(stream, request, 7, CU_STREAM_WAIT_VALUE_EQ));
  SEE(cuStreamSynchronize(stream));
  // The data that the word announces is written before it, and read after the wait.
  SEE(cuStreamWaitValue32_v2(stream, request, 100, CU_STREAM_WAIT_VALUE_GEQ));
  add_data(memory, device, stream);
  for (int i = 0; i < kCount; ++i) memory->data[i] = i;
  __atomic_store_n(&memory->request, 101, __ATOMIC_RELEASE);
  SEE(cuStreamSynchronize(stream));
  say("data: %d", sum());
  SEE(cuStreamWaitValue64_v2(stream, of(memory, device, &memory->wide), 1ULL << 40, CU_STREAM_WAIT_VALUE_AND));
  memory->wide = 3ULL << 40;
  SEE(cuStreamSynchronize(stream));
  unsigned rounds = 0;
  memory->request = 0;
  for (uint32_t i = 1; i <= kRounds; ++i) {
    CHECK(cuStreamWaitValue32_v2(stream, request, i, CU_STREAM_WAIT_VALUE_EQ));
    add_data(memory, device, stream);
    CHECK(cuStreamWriteValue32_v2(stream, answer, i, CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  for (uint32_t i = 1; i <= kRounds; ++i) {
    for (int k = 0; k < kCount; ++k) memory->data[k] = (int)i * k;
    __atomic_store_n(&memory->request, i, __ATOMIC_RELEASE);
    if (!comes_to(&memory->answer, i)) break;
    ++rounds;
  }
  say("rounds: %u", rounds);
  SEE(cuStreamSynchronize(stream));
  say("data: %d, answer %u", sum(), memory->answer);
  CHECK(cuStreamDestroy_v2(stream));
}

PROGRAM("handed-words", "words in host memory that a stream waits for while the host writes them, and the other way round") {
  primary();
  add = kernel(kernels(), "add");
  out = allocate(kCount * sizeof(int));
  void* memory;
  CHECK(cuMemHostAlloc(&memory, sizeof(struct shared), CU_MEMHOSTALLOC_DEVICEMAP));
  memset(memory, 0, sizeof(struct shared));
  hand_words("little memory", memory);
  CHECK(cuMemFreeHost(memory));
  CHECK(cuMemHostAlloc(&memory, 4 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(memory, 0, 4 << 20);
  hand_words("much memory", memory);
  CHECK(cuMemFreeHost(memory));
  // Mapped directly, without an allocator: a sanitizer's allocator uses the same addresses in every process, and therefore in
  // the worker too.
  memory = mmap(NULL, kRegisteredBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(1);
  memset(memory, 0, kRegisteredBytes);
  CHECK(cuMemHostRegister_v2(memory, kRegisteredBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  hand_words("registered memory", memory);
  CHECK(cuMemHostUnregister(memory));
  munmap(memory, kRegisteredBytes);
}
