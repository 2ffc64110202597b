// SPDX-License-Identifier: Apache-2.0
// The test kernels (data/kernels.cu), loaded as a module.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {

inline std::string testData(const std::string& name) {
  std::ifstream file(std::string(MILLPOND_SOFTGPU_TESTDATA "/") + name, std::ios::binary);
  CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

class KernelModule {
 public:
  KernelModule() {
    static const std::string ptx = testData("kernels.ptx");
    OK(CU(cuModuleLoadData)(&module_, ptx.c_str()));
  }
  ~KernelModule() { CU(cuModuleUnload)(module_); }
  CUmodule handle() const { return module_; }
  CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    OK(CU(cuModuleGetFunction)(&found, module_, name));
    return found;
  }

 private:
  CUmodule module_ = nullptr;
};

/// Device memory of ints or floats.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) { OK(CU(cuMemAlloc_v2)(&pointer_, size * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    OK(CU(cuMemcpyHtoD_v2)(pointer_, values.data(), size_ * sizeof(T)));
  }
  ~DeviceArray() { CU(cuMemFree_v2)(pointer_); }
  CUdeviceptr pointer() const { return pointer_; }
  std::vector<T> values() const {
    std::vector<T> host(size_);
    OK(CU(cuMemcpyDtoH_v2)(host.data(), pointer_, size_ * sizeof(T)));
    return host;
  }

 private:
  const size_t size_;
  CUdeviceptr pointer_ = 0;
};

/// Launches with parameters of any types.
template <typename... Parameters>
CUresult launch(CUfunction function, unsigned grid, unsigned block, CUstream stream, Parameters... parameters) {
  void* pointers[] = {&parameters..., nullptr};
  return CU(cuLaunchKernel)(function, grid, 1, 1, block, 1, 1, 0, stream, pointers, nullptr);
}

}  // namespace millpond::softgpu::testing
