// SPDX-License-Identifier: Apache-2.0
// Stands for an interactive shell with idle times between its lines: executes each line of its input and
// prints the outcome.
#include <cstring>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

constexpr size_t kWords = 1024;

CUdeviceptr allocate(uint32_t value) {
  CUdeviceptr memory = 0;
  OK(cuMemAlloc_v2(&memory, kWords * sizeof(uint32_t)));
  OK(cuMemsetD32_v2(memory, value, kWords));
  return memory;
}

/// State that one line of computation leaves for the next: a stream, events and a kernel, but no memory.
struct Kept {
  CUstream stream = nullptr;
  CUevent begin = nullptr, end = nullptr;
  float ms = 0;
};

void compute(Kept& kept) {
  if (!kept.stream) {
    OK(cuStreamCreate(&kept.stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&kept.begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&kept.end, CU_EVENT_DEFAULT));
  } else {
    float ms = 0;
    OK(cuEventElapsedTime(&ms, kept.begin, kept.end));
    REQUIRE(ms == kept.ms);
  }
  const CUdeviceptr memory = allocate(7);
  OK(cuCtxSynchronize());
  OK(cuEventRecord(kept.begin, kept.stream));
  launchAdd(memory, 1, kWords, kept.stream);
  OK(cuEventRecord(kept.end, kept.stream));
  OK(cuEventSynchronize(kept.end));
  OK(cuEventElapsedTime(&kept.ms, kept.begin, kept.end));
  requireWords(memory, 8, kWords);
  OK(cuMemFree_v2(memory));
}

/// A word in pinned memory with which the device counts, so that a lost or repeated command is detected.
struct Counter {
  uint32_t* word = nullptr;
  uint32_t expected = 0;
};

void count(Counter& counter) {
  if (!counter.word) {
    OK(cuMemHostAlloc(reinterpret_cast<void**>(&counter.word), sizeof(uint32_t), 0));
    *counter.word = 0;
  }
  const CUdeviceptr memory = allocate(0);
  OK(cuMemcpyHtoDAsync_v2(memory, counter.word, sizeof(uint32_t), nullptr));
  launchAdd(memory, 1, 1, nullptr);
  OK(cuMemcpyDtoHAsync_v2(counter.word, memory, sizeof(uint32_t), nullptr));
  OK(cuStreamSynchronize(nullptr));
  OK(cuMemFree_v2(memory));
  REQUIRE(*counter.word == ++counter.expected);
}

}  // namespace

void shell() {
  useDevice();
  char line[64];
  CUdeviceptr held = 0;
  Kept kept;
  Counter counter;
  while (std::fgets(line, sizeof line, stdin)) {
    line[std::strcspn(line, "\n")] = '\0';
    if (std::strcmp(line, "look") == 0) {
      size_t free = 0, total = 0;
      OK(cuMemGetInfo_v2(&free, &total));
    } else if (std::strcmp(line, "work") == 0) {
      const CUdeviceptr memory = allocate(7);
      requireWords(memory, 7, kWords);
      OK(cuMemFree_v2(memory));
    } else if (std::strcmp(line, "compute") == 0) {
      compute(kept);
    } else if (std::strcmp(line, "count") == 0) {
      count(counter);
    } else if (std::strcmp(line, "hold") == 0) {
      held = allocate(9);
    } else if (std::strcmp(line, "drop") == 0) {
      requireWords(held, 9, kWords);
      OK(cuMemFree_v2(held));
    } else {
      fail(line, __FILE__, __LINE__);
    }
    std::printf("done: %s\n", line);
    std::fflush(stdout);
  }
}

}  // namespace millpond::programs
