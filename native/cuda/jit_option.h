// SPDX-License-Identifier: Apache-2.0
// The wire format of options of the just-in-time compiler and of the linker.
#pragma once

#include <cstdint>

#include "cuda/gen/cuda_api.h"

namespace millpond {

/// More options than exist.
inline constexpr unsigned kMaxJitOptions = 64;
/// The limit of each log, in bytes; a larger buffer of the program is only partly used. Both logs are in one reply.
inline constexpr uint32_t kMaxJitLogBytes = uint32_t{448} << 10;

struct JitOptionRecord {
  uint32_t id;
  uint32_t reserved;
  uint64_t value;  ///< as in the program's array of values; for a log buffer, its size
};

enum class JitOptionKind {
  kNumber,   ///< in
  kThreads,  ///< in and out: CU_JIT_THREADS_PER_BLOCK
  kTime,     ///< out, a float in place of the value
  kInfoLog,  ///< a buffer
  kErrorLog,
  kInfoBytes,  ///< in and out: the size of that buffer
  kErrorBytes,
  kRefused,  ///< lists of pointers, for link-time optimisation and symbols of the host
  kUnknown
};

inline JitOptionKind kindOf(CUjit_option option) {
  switch (option) {
    case CU_JIT_THREADS_PER_BLOCK: return JitOptionKind::kThreads;
    case CU_JIT_WALL_TIME: return JitOptionKind::kTime;
    case CU_JIT_INFO_LOG_BUFFER: return JitOptionKind::kInfoLog;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: return JitOptionKind::kInfoBytes;
    case CU_JIT_ERROR_LOG_BUFFER: return JitOptionKind::kErrorLog;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: return JitOptionKind::kErrorBytes;
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT: return JitOptionKind::kRefused;
    default:
      return option >= CU_JIT_MAX_REGISTERS && option < CU_JIT_NUM_OPTIONS ? JitOptionKind::kNumber
                                                                           : JitOptionKind::kUnknown;
  }
}

}  // namespace millpond
