// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/program/function.h"

#include <algorithm>

namespace millpond::softgpu {

FunctionSettings::FunctionSettings(const ptx::KernelInfo& info)
    : maxDynamicShared_(kSharedBytesPerBlock - std::min(info.staticSharedBytes, kSharedBytesPerBlock)) {}

FunctionSettings& FunctionSettings::operator=(const FunctionSettings& other) {
  maxDynamicShared_ = other.maxDynamicShared_.load();
  preferredCarveout_ = other.preferredCarveout_.load();
  return *this;
}

CUresult FunctionSettings::get(const ptx::KernelInfo& info, const ptx::Program& program, CUfunction_attribute attribute,
                               int* value) const {
  const auto put = [&](auto number) {
    *value = static_cast<int>(number);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return put(info.maxThreads);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return put(info.staticSharedBytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: return put(info.constBytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return put(info.localBytes);
    // PTX has an unlimited number of registers, which a compiler would fit into those of a thread.
    case CU_FUNC_ATTRIBUTE_NUM_REGS: return put(std::clamp(info.registers, 1u, 64u));
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: return put(program.target());
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return put(10 * kComputeMajor + kComputeMinor);
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: return put(0);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: return put(maxDynamicShared_.load());
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return put(preferredCarveout_.load());
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: return put(0);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult FunctionSettings::set(const ptx::KernelInfo& info, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const uint32_t most = kSharedBytesPerBlockOptIn - std::min(info.staticSharedBytes, kSharedBytesPerBlockOptIn);
      if (value < 0 || static_cast<uint32_t>(value) > most) return CUDA_ERROR_INVALID_VALUE;
      maxDynamicShared_ = static_cast<uint32_t>(value);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      preferredCarveout_ = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult parameterInfo(const ptx::KernelInfo& info, size_t index, size_t* offset, size_t* bytes) {
  if (!offset || index >= info.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.parameters[index].offset;
  if (bytes) *bytes = info.parameters[index].bytes;
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu
