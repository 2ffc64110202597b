// SPDX-License-Identifier: Apache-2.0
#include "client/preconditions.h"

namespace millpond::client::precondition {

CUresult memsetRange(Call& call, CUdeviceptr to, size_t bytes, size_t unit) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (to == 0 || to % unit != 0) return CUDA_ERROR_INVALID_VALUE;
  const MemoryMap& memory = call.remote().memory;
  if (memory.find(to, bytes)) return CUDA_SUCCESS;  // nearly always
  // An address that this client did not give out is the worker's driver's to judge.
  return memory.find(to) && !memory.covers(to, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult memsetRows(Call& call, CUdeviceptr to, size_t pitch, size_t width, size_t height, size_t unit) {
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (height > 1 && (pitch < width || pitch % unit != 0)) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = 0;
  if (__builtin_mul_overflow(pitch, height - 1, &bytes) || __builtin_add_overflow(bytes, width, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return memsetRange(call, to, bytes, unit);
}

}  // namespace millpond::client::precondition
