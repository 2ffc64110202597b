// SPDX-License-Identifier: Apache-2.0
#include "bench/driver.h"

#include <dlfcn.h>

#include <string>

#include "bench/report.h"

namespace millpond::bench {
namespace {

/// PTX that every driver since CUDA 10 compiles.
constexpr char kKernels[] = R"(.version 6.4
.target sm_75
.address_size 64
.visible .entry mark(.param .u64 address, .param .u32 value, .param .u32 count)
{
  .reg .pred %outside;
  .reg .b32 %r<7>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [count];
  setp.ge.u32 %outside, %r4, %r5;
  @%outside bra done;
  ld.param.u32 %r6, [value];
  add.s32 %r6, %r6, %r4;
  ld.param.u64 %rd1, [address];
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r6;
done:
  ret;
}
)";

}  // namespace

Driver::Driver(const char* path) {
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(std::string("cannot load the driver: ") + ::dlerror());
  const auto find = [&](auto& function, const char* name) {
    void* found = ::dlsym(library, name);
    if (!found) fail(std::string(path) + " has no " + name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(cuInit, "cuInit");
  find(cuGetErrorName, "cuGetErrorName");
  find(cuDeviceGet, "cuDeviceGet");
  find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  find(cuCtxSetCurrent, "cuCtxSetCurrent");
  find(cuModuleLoadData, "cuModuleLoadData");
  find(cuModuleGetFunction, "cuModuleGetFunction");
  find(cuMemAlloc, "cuMemAlloc_v2");
  find(cuMemHostAlloc, "cuMemHostAlloc");
  find(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  find(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  find(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  find(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  find(cuMemsetD32Async, "cuMemsetD32Async");
  find(cuLaunchKernel, "cuLaunchKernel");
  find(cuStreamCreate, "cuStreamCreate");
  find(cuStreamQuery, "cuStreamQuery");
  find(cuStreamSynchronize, "cuStreamSynchronize");
  find(cuEventCreate, "cuEventCreate");
  find(cuEventRecord, "cuEventRecord");
  find(cuEventSynchronize, "cuEventSynchronize");
  find(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  find(cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  find(cuStreamEndCapture, "cuStreamEndCapture");
  find(cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  find(cuGraphLaunch, "cuGraphLaunch");
  find(cuGraphExecDestroy, "cuGraphExecDestroy");
  find(cuGraphDestroy, "cuGraphDestroy");
  find(cuLaunchHostFunc, "cuLaunchHostFunc");
}

void Driver::must(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "an unknown error";
  fail(std::string(call) + " answered " + name + " (" + std::to_string(static_cast<int>(result)) + ")");
}

Device::Device(const Driver& driver) {
  CUdevice device = 0;
  CUmodule module = nullptr;
  driver.must(driver.cuDeviceGet(&device, 0), "cuDeviceGet");
  driver.must(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  driver.must(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  driver.must(driver.cuModuleLoadData(&module, kKernels), "cuModuleLoadData");
  driver.must(driver.cuModuleGetFunction(&mark, module, "mark"), "cuModuleGetFunction");
}

}  // namespace millpond::bench
