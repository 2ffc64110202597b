// SPDX-License-Identifier: Apache-2.0
// Function handles, which may be kernels of libraries too.
#pragma once

#include "softgpu/driver/api/api.h"

namespace millpond::softgpu::api {

/// The function behind a CUfunction, or behind a CUkernel that was cast to one, then in `context`.
/// CUDA_ERROR_INVALID_HANDLE for any other value.
inline CUresult resolveFunction(Driver& driver, CUfunction handle, const ContextPtr& context,
                                std::shared_ptr<Function>* function) {
  *function = driver.functions().find(handle);
  if (*function) return CUDA_SUCCESS;
  const std::shared_ptr<LibraryKernel> kernel = driver.kernels().find(reinterpret_cast<CUkernel>(handle));
  return kernel ? kernel->function(context, function) : CUDA_ERROR_INVALID_HANDLE;
}

/// A call about a function, in the current context: `body(Driver&, const std::shared_ptr<Function>&)`.
template <typename Body>
CUresult withFunction(CUfunction handle, Body body) noexcept {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    std::shared_ptr<Function> function;
    if (CUresult result = resolveFunction(driver, handle, context, &function)) return result;
    return body(driver, function);
  });
}

/// A call about a library's kernel: `body(Driver&, const std::shared_ptr<LibraryKernel>&)`.
template <typename Body>
CUresult withKernel(CUkernel handle, Body body) noexcept {
  return withDriver([&](Driver& driver) -> CUresult {
    const std::shared_ptr<LibraryKernel> kernel = driver.kernels().find(handle);
    return kernel ? body(driver, kernel) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace millpond::softgpu::api
