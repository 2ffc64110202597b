// SPDX-License-Identifier: Apache-2.0
// Stands for NVIDIA's library, where frameworks are linked to find it: its version is that of no release.
#include <cstdint>

extern "C" [[gnu::visibility("default")]] int cuptiGetVersion(uint32_t* version) {
  *version = 1;
  return 0;
}
