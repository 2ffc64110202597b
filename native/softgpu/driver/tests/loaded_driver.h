// SPDX-License-Identifier: Apache-2.0
// The driver as its users see it: a library loaded by path, its entry points looked up by name. Each test
// program has devices of its own.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "cuda/gen/cuda_api.h"
#include "testing/check.h"

namespace millpond::softgpu::testing {

inline constexpr size_t kMemoryBytes = size_t{256} << 20;  // of each of the two devices

/// A directory that is deleted when the program ends.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "softgpu-test-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Sets the driver's environment variables, unless the parent process has done so.
inline void configure() {
  static TemporaryDirectory state;
  ::setenv("MILLPOND_SOFTGPU_STATE", state.path().c_str(), 0);
  ::setenv("MILLPOND_SOFTGPU_SEED", "test", 0);
  ::setenv("MILLPOND_SOFTGPU_DEVICES", "2", 0);
  ::setenv("MILLPOND_SOFTGPU_MEMORY", "256Mi", 0);
  // Many tests fail on purpose.
  ::setenv("MILLPOND_LOG", "off", 0);
}

inline void* library() {
  static void* const handle = [] {
    configure();
    void* opened = ::dlopen(MILLPOND_SOFTGPU_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!opened) std::fprintf(stderr, "%s\n", ::dlerror());
    CHECK(opened != nullptr);
    return opened;
  }();
  return handle;
}

template <typename Function>
Function* entryPoint(const char* name) {
  auto* found = reinterpret_cast<Function*>(::dlsym(library(), name));
  if (!found) std::fprintf(stderr, "no entry point %s\n", name);
  CHECK(found != nullptr);
  return found;
}

/// An entry point: CU(cuInit)(0). Looked up once at each call site.
#define CU(name)                                                                                   \
  ([]() -> decltype(&::name) {                                                                     \
    static const auto entry =                                                                      \
        ::millpond::softgpu::testing::entryPoint<std::remove_pointer_t<decltype(&::name)>>(#name); \
    return entry;                                                                                  \
  }())

/// A call that must succeed, or fail with a given code.
#define OK(call) CHECK_EQ(static_cast<int>(call), 0)
#define FAILS(code, call) CHECK_EQ(static_cast<int>(call), static_cast<int>(code))

/// The free memory of the current context's device, in bytes.
inline size_t freeBytes() {
  size_t free = 0;
  size_t total = 0;
  OK(CU(cuMemGetInfo_v2)(&free, &total));
  return free;
}

/// Retains the primary context of device 0 or another and makes it current, for the lifetime of the object.
class PrimaryContext {
 public:
  explicit PrimaryContext(CUdevice device = 0) : device_(device) {
    OK(CU(cuInit)(0));
    OK(CU(cuDevicePrimaryCtxRetain)(&handle_, device_));
    OK(CU(cuCtxPushCurrent_v2)(handle_));
  }
  ~PrimaryContext() {
    CU(cuCtxPopCurrent_v2)(nullptr);
    CU(cuDevicePrimaryCtxRelease_v2)(device_);
  }
  CUcontext handle() const { return handle_; }

 private:
  const CUdevice device_;
  CUcontext handle_ = nullptr;
};

/// A new context, current for the lifetime of the object.
class OwnContext {
 public:
  OwnContext() {
    OK(CU(cuInit)(0));
    OK(CU(cuCtxCreate_v2)(&handle_, 0, 0));
  }
  ~OwnContext() { OK(CU(cuCtxDestroy_v2)(handle_)); }
  CUcontext handle() const { return handle_; }

 private:
  CUcontext handle_ = nullptr;
};

}  // namespace millpond::softgpu::testing
