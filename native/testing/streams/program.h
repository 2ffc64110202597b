// SPDX-License-Identifier: Apache-2.0
// Common code of programs for the driver API: the library is loaded by its name, so that the same program runs on a
// real driver, on the software GPU, and through Millpond. First argument: a PTX file with the kernels of the tests.
#pragma once

#include <dlfcn.h>

#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "testing/check.h"

namespace millpond::streams {

inline std::string kernelFile;

inline void* driverLibrary() {
  static void* const opened = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!opened) millpond::testing::fail(__FILE__, __LINE__, ::dlerror());
  return opened;
}

inline void* driverSymbol(const char* name) {
  void* found = ::dlsym(driverLibrary(), name);
  if (!found) millpond::testing::fail(__FILE__, __LINE__, std::string("no symbol ") + name);
  return found;
}

#define CU(name)                                                                                           \
  ([]() {                                                                                                  \
    static const auto entry = reinterpret_cast<decltype(&::name)>(millpond::streams::driverSymbol(#name)); \
    return entry;                                                                                          \
  }())
#define OK(call) CHECK_EQ(static_cast<int>(call), 0)
#define FAILS(code, call) CHECK_EQ(static_cast<int>(call), static_cast<int>(code))

/// The primary context of the first device, made current and kept until the process ends.
inline CUcontext context() {
  static CUcontext made = [] {
    CUcontext handle = nullptr;
    OK(CU(cuInit)(0));
    OK(CU(cuDevicePrimaryCtxRetain)(&handle, 0));
    OK(CU(cuCtxSetCurrent)(handle));
    return handle;
  }();
  return made;
}

inline CUfunction kernel(const char* name) {
  static CUmodule module = [] {
    std::ifstream file(kernelFile, std::ios::binary);
    CHECK(file.good());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CUmodule loaded = nullptr;
    OK(CU(cuModuleLoadData)(&loaded, text.c_str()));
    return loaded;
  }();
  CUfunction found = nullptr;
  OK(CU(cuModuleGetFunction)(&found, module, name));
  return found;
}

inline CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream made = nullptr;
  OK(CU(cuStreamCreate)(&made, flags));
  return made;
}

inline CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
  CUevent made = nullptr;
  OK(CU(cuEventCreate)(&made, flags));
  return made;
}

inline CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address = 0;
  OK(CU(cuMemAlloc_v2)(&address, bytes));
  return address;
}

inline std::vector<int> read(CUdeviceptr from, size_t count) {
  std::vector<int> values(count);
  OK(CU(cuMemcpyDtoH_v2)(values.data(), from, count * sizeof(int)));
  return values;
}

/// A host function that holds its stream up until the test opens it.
class Gate {
 public:
  ~Gate() { open(); }
  void close(CUstream in) { OK(CU(cuLaunchHostFunc)(in, &Gate::run, this)); }
  void open() {
    const std::lock_guard lock(mutex_);
    isOpen_ = true;
    changed_.notify_all();
  }
  void awaitArrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return hasArrived_; });
  }

 private:
  static void run(void* self) {
    auto* gate = static_cast<Gate*>(self);
    std::unique_lock lock(gate->mutex_);
    gate->hasArrived_ = true;
    gate->changed_.notify_all();
    gate->changed_.wait(lock, [&] { return gate->isOpen_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool isOpen_ = false;
  bool hasArrived_ = false;
};

/// Runs the cases; `argv[1]` is the PTX file, `argv[2]` part of the names of those to run.
inline int run(int argc, char** argv) {
  CHECK(argc > 1);
  kernelFile = argv[1];
  return millpond::testing::run(argc - 1, argv + 1);
}

}  // namespace millpond::streams
