// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "testing/check.h"
#include "worker/testing/fake_calls.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {

/// Modules: every image that does not begin with "bad" loads, and has a function fN with N bytes of parameters for any N.
struct FakeModuleCalls : FakeCalls {
  static FakeDriver::Module& module(void* handle) {
    auto& m = *static_cast<FakeDriver::Module*>(handle);
    CHECK(!m.unloaded);
    return m;
  }
  static CUresult load(void** out, const void* image, const char* call) {
    if (const CUresult rc = d().failure(call)) return rc;
    Lock lock(d().mutex_);
    std::string text(static_cast<const char*>(image));
    if (text.starts_with("bad")) return CUDA_ERROR_INVALID_IMAGE;
    d().modules_.push_back(std::make_unique<FakeDriver::Module>());
    d().modules_.back()->text = std::move(text);
    *out = d().modules_.back().get();
    return CUDA_SUCCESS;
  }
  static CUresult moduleLoad(CUmodule* out, const void* image, unsigned, CUjit_option*, void**) {
    return load(reinterpret_cast<void**>(out), image, "cuModuleLoadData");
  }
  static CUresult libraryLoad(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*,
                              void**, unsigned) {
    return load(reinterpret_cast<void**>(out), image, "cuLibraryLoadData");
  }
  static CUresult unload(void* handle) {
    Lock lock(d().mutex_);
    module(handle).unloaded = true;
    return CUDA_SUCCESS;
  }
  static CUresult moduleUnload(CUmodule m) { return unload(m); }
  static CUresult libraryUnload(CUlibrary l) { return unload(l); }
  static CUresult get(void** out, void* handle, const char* name) {
    if (const CUresult rc = d().failure("cuModuleGetFunction")) return rc;
    Lock lock(d().mutex_);
    auto& m = module(handle);
    if (name[0] != 'f') return CUDA_ERROR_NOT_FOUND;
    m.functions.push_back({name, static_cast<uint32_t>(std::atoi(name + 1))});
    *out = &m.functions.back();
    return CUDA_SUCCESS;
  }
  static CUresult moduleGetFunction(CUfunction* out, CUmodule m, const char* name) {
    return get(reinterpret_cast<void**>(out), m, name);
  }
  static CUresult libraryGetKernel(CUkernel* out, CUlibrary l, const char* name) {
    return get(reinterpret_cast<void**>(out), l, name);
  }
  static CUresult kernelGetFunction(CUfunction* out, CUkernel kernel) {
    *out = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  }
  static CUresult parameter(const void* function, size_t index, size_t* offset, size_t* size) {
    const auto& f = *static_cast<const FakeDriver::Function*>(function);
    if (index * 4 >= f.parameterBytes) return CUDA_ERROR_INVALID_VALUE;
    *offset = index * 4;
    *size = 4;
    return CUDA_SUCCESS;
  }
  static CUresult funcGetParamInfo(CUfunction f, size_t i, size_t* o, size_t* s) { return parameter(f, i, o, s); }
  static CUresult kernelGetParamInfo(CUkernel k, size_t i, size_t* o, size_t* s) { return parameter(k, i, o, s); }
  static CUresult record(CUfunction function, CUstream stream, unsigned attributes, void** extra) {
    if (const CUresult rc = d().failure("cuLaunchKernel")) return rc;
    Lock lock(d().mutex_);
    const auto& f = *reinterpret_cast<const FakeDriver::Function*>(function);
    FakeDriver::Launch launch{f.name, {}, d().stream(stream).number, attributes};
    if (extra) {
      CHECK(extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER && extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE);
      const auto* bytes = static_cast<const std::byte*>(extra[1]);
      launch.params.assign(bytes, bytes + *static_cast<size_t*>(extra[3]));
    }
    CHECK_EQ(launch.params.size(), f.parameterBytes);
    d().issue(d().stream(stream), {{}, [launch = std::move(launch)] { d().launches_.push_back(launch); }});
    return CUDA_SUCCESS;
  }
  static CUresult launchKernel(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CUstream s, void**, void** extra) {
    return record(f, s, 0, extra);
  }
  static CUresult launchKernelEx(const CUlaunchConfig* config, CUfunction f, void**, void** extra) {
    return record(f, config->hStream, config->numAttrs, extra);
  }
};

void fillModuleCalls(Driver& t) {
  using C = FakeModuleCalls;
  t.cuModuleLoadDataEx = &C::moduleLoad;
  t.cuLibraryLoadData = &C::libraryLoad;
  t.cuModuleUnload = &C::moduleUnload;
  t.cuLibraryUnload = &C::libraryUnload;
  t.cuModuleGetFunction = &C::moduleGetFunction;
  t.cuLibraryGetKernel = &C::libraryGetKernel;
  t.cuKernelGetFunction = &C::kernelGetFunction;
  t.cuFuncGetParamInfo = &C::funcGetParamInfo;
  t.cuKernelGetParamInfo = &C::kernelGetParamInfo;
  t.cuLaunchKernel = &C::launchKernel;
  t.cuLaunchKernelEx = &C::launchKernelEx;
}

}  // namespace millpond::worker
