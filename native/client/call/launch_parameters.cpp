// SPDX-License-Identifier: Apache-2.0
#include "client/call/launch_parameters.h"

#include <cstring>

namespace millpond::client {

namespace {

/// Packs one buffer. It may be short, on which NCCL relies; one that is too long cannot be launched.
CUresult packBuffer(const FunctionInfo& info, void** extra, std::span<std::byte> bytes) {
  const void* buffer = nullptr;
  size_t size = 0;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = at[1];
    else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE && at[1])
      size = *static_cast<const size_t*>(at[1]);
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (size > info.parameterBytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (info.parameterBytes == 0) return CUDA_SUCCESS;
  if (buffer == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(bytes.data(), buffer, size);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult packParameters(const FunctionInfo& info, void** kernelParams, void** extra, std::span<std::byte> bytes) {
  if (kernelParams && extra && info.parameterBytes) return CUDA_ERROR_INVALID_VALUE;
  if (extra && !kernelParams) return packBuffer(info, extra, bytes);
  if (info.parameterBytes == 0) return CUDA_SUCCESS;
  if (!kernelParams) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    if (kernelParams[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(bytes.data() + info.parameters[i].offset, kernelParams[i], info.parameters[i].size);
  }
  return CUDA_SUCCESS;
}

}  // namespace millpond::client
