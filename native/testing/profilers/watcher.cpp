// SPDX-License-Identifier: Apache-2.0
// A profiler that is preloaded into any program: it enables records before the program has a GPU, and writes them into the file
// that MILLPOND_TEST_RECORDS names when the program ends.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "testing/profilers/records.h"

using namespace millpond::profiler;

extern "C" {
Result cuptiActivityRegisterCallbacks(void (*)(uint8_t**, size_t*, size_t*),
                                      void (*)(void*, uint32_t, uint8_t*, size_t, size_t));
Result cuptiActivityEnable(uint32_t);
Result cuptiActivityDisable(uint32_t);
Result cuptiActivityEnableRuntimeApi(uint32_t, uint8_t);
Result cuptiActivityFlushAll(uint32_t);
Result cuptiActivityGetNextRecord(uint8_t*, size_t, uint8_t**);
}

namespace {

constexpr uint32_t kKinds[] = {kConcurrentKernel, kCopy, kRuntime, kDriver};
/// cudaGetLastError
constexpr uint32_t kUnwanted = 10;

std::FILE* file = nullptr;

void requested(uint8_t** buffer, size_t* bytes, size_t* mostRecords) {
  *bytes = 8192;
  *buffer = static_cast<uint8_t*>(std::malloc(*bytes));
  *mostRecords = 3;
}

void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t validBytes) {
  uint8_t* record = nullptr;
  int records = 0;
  while (cuptiActivityGetNextRecord(buffer, validBytes, &record) == kSuccess) {
    print(record, file);
    ++records;
  }
  if (records > 3) std::fprintf(file, "too many records: %d\n", records);
  std::free(buffer);
}

void writeOut() {
  if (const Result flushed = cuptiActivityFlushAll(1); flushed != kSuccess) std::fprintf(file, "flush %d\n", flushed);
  for (const uint32_t kind : kKinds) cuptiActivityDisable(kind);
  std::fclose(file);
}

__attribute__((constructor)) void watch() {
  const char* const name = std::getenv("MILLPOND_TEST_RECORDS");
  if (!name) return;
  file = std::fopen(name, "w");
  if (!file) return;
  cuptiActivityRegisterCallbacks(&requested, &completed);
  for (const uint32_t kind : kKinds)
    if (const Result enabled = cuptiActivityEnable(kind); enabled != kSuccess)
      std::fprintf(file, "enable %d\n", enabled);
  cuptiActivityEnableRuntimeApi(kUnwanted, 0);
  // Before the destructors of libraries.
  std::atexit(&writeOut);
}

}  // namespace
