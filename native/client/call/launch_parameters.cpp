// SPDX-License-Identifier: Apache-2.0
#include "client/call/launch_parameters.h"

#include <cstring>

namespace millpond::client {

CUresult packParameters(const FunctionInfo& info, void** kernelParams, void** extra, std::span<std::byte> bytes) {
  if (info.parameterBytes == 0) return CUDA_SUCCESS;
  if (kernelParams) {
    if (extra) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < info.parameters.size(); ++i) {
      if (kernelParams[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(bytes.data() + info.parameters[i].offset, kernelParams[i], info.parameters[i].size);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr) return CUDA_ERROR_INVALID_VALUE;
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
  if (buffer == nullptr || size < info.parameterBytes) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(bytes.data(), buffer, info.parameterBytes);
  return CUDA_SUCCESS;
}

}  // namespace millpond::client
