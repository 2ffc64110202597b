// SPDX-License-Identifier: Apache-2.0
// Common code of the programs of this folder: they use only the driver's API, and print the same on every driver.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::programs {

/// Ends the program unless `call` returns `wanted`.
#define EXPECT(wanted, call) ::millpond::programs::expect(call, wanted, #call, __FILE__, __LINE__)
#define OK(call) EXPECT(CUDA_SUCCESS, call)
#define REQUIRE(condition)                                                        \
  do {                                                                            \
    if (!(condition)) ::millpond::programs::fail(#condition, __FILE__, __LINE__); \
  } while (false)

[[noreturn]] inline void fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::exit(1);
}
inline void expect(CUresult got, CUresult wanted, const char* call, const char* file, int line) {
  if (got == wanted) return;
  std::fprintf(stderr, "%s:%d: %s answered %d, not %d\n", file, line, call, static_cast<int>(got),
               static_cast<int>(wanted));
  std::exit(1);
}

/// cuInit, and makes the primary context of a device current.
CUcontext useDevice(int ordinal = 0);
/// The kernel `add(uint32_t* p, uint32_t value, uint32_t count)` on the current device: adds to each word.
void launchAdd(CUdeviceptr p, uint32_t value, uint32_t count, CUstream stream = nullptr);
/// Checks that all words have this value, by copying them to the host.
void requireWords(CUdeviceptr p, uint32_t value, size_t count);

/// Each prints one line "name: OK" at its end.
void arrays();
void batches();
void bugBehind();
void bugBarrier();
void bugCopy();
void bugFreed();
void bugLeak();
void bugLeft();
void bugNone();
void bugNull();
void bugRace();
void bugTwice();
void bugUnreadable();
void bugUnwritten();
void hostMemory();
void managed();
void memoryPools();
void shell();
void virtualMemory();

}  // namespace millpond::programs
