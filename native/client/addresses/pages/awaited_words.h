// SPDX-License-Identifier: Apache-2.0
// Words in memory by which the program and its streams signal each other while both run.
#pragma once

#include <cstdint>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

struct AwaitedWord {
  enum class By : uint8_t {
    kStream,   ///< a stream continues when the program has made the condition true
    kProgram,  ///< a stream will make it true, and the program may poll for that
  };
  By by = By::kStream;
  uint64_t address = 0;
  uint32_t bytes = 4;  ///< or 8
  uint64_t value = 0;
  unsigned flags = 0;  ///< CUstreamWaitValue_flags
  uint64_t work = 0;   ///< the mirror's work count when the stream got the word

  uint64_t end() const { return address + bytes; }
  bool isTrue(uint64_t now) const {
    const uint64_t mask = bytes == 8 ? UINT64_MAX : UINT32_MAX;
    const auto difference = static_cast<int64_t>((now - value) << (64 - bytes * 8));
    switch (flags & 3u) {
      case CU_STREAM_WAIT_VALUE_GEQ: return difference >= 0;
      case CU_STREAM_WAIT_VALUE_EQ: return difference == 0;
      case CU_STREAM_WAIT_VALUE_AND: return (now & value & mask) != 0;
      default: return (~(now | value) & mask) != 0;
    }
  }
};

}  // namespace millpond::client
