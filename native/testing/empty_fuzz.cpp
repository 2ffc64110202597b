// SPDX-License-Identifier: Apache-2.0
// Compiles where there is a libFuzzer.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }
