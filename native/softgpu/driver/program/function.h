// SPDX-License-Identifier: Apache-2.0
// A kernel as programs see it: its attributes, and the few of them that can be changed.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/device.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

class Module;

/// Attributes of a kernel that a program can change.
class FunctionSettings {
 public:
  explicit FunctionSettings(const ptx::KernelInfo& info);
  FunctionSettings(const FunctionSettings& other) { *this = other; }
  FunctionSettings& operator=(const FunctionSettings& other);

  /// Bytes of dynamic shared memory that a launch may request.
  uint32_t maxDynamicShared() const { return maxDynamicShared_; }
  CUresult get(const ptx::KernelInfo& info, const ptx::Program& program, CUfunction_attribute attribute,
               int* value) const;
  CUresult set(const ptx::KernelInfo& info, CUfunction_attribute attribute, int value);

 private:
  std::atomic<uint32_t> maxDynamicShared_ = 0;
  std::atomic<int> preferredCarveout_ = -1;
};

/// A kernel of a module loaded in a context: the object behind a CUfunction handle.
class Function {
 public:
  Function(Module& module, uint64_t contextId, const ptx::Kernel& kernel)
      : module_(module), contextId_(contextId), kernel_(kernel), settings_(kernel.info()) {}

  Module& module() const { return module_; }
  const ptx::Kernel& kernel() const { return kernel_; }
  const ptx::KernelInfo& info() const { return kernel_.info(); }
  FunctionSettings& settings() { return settings_; }
  const FunctionSettings& settings() const { return settings_; }
  uint64_t contextId() const { return contextId_; }

 private:
  Module& module_;  // owns this
  const uint64_t contextId_;
  const ptx::Kernel& kernel_;
  FunctionSettings settings_;
};

/// Offset and size of a kernel's parameter; CUDA_ERROR_INVALID_VALUE beyond the last one. `bytes` may be null.
CUresult parameterInfo(const ptx::KernelInfo& info, size_t index, size_t* offset, size_t* bytes);

}  // namespace millpond::softgpu
