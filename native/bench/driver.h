// SPDX-License-Identifier: Apache-2.0
// The part of the driver API that the measurements use, from a library given by path.
#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond::bench {

struct Driver {
  /// Loads the library and finds the functions; ends the program if that fails.
  explicit Driver(const char* path);

  /// Ends the program, naming the call, if `result` is a failure.
  void must(CUresult result, const char* call) const;

  decltype(&::cuInit) cuInit;
  decltype(&::cuGetErrorName) cuGetErrorName;
  decltype(&::cuDeviceGet) cuDeviceGet;
  decltype(&::cuDevicePrimaryCtxRetain) cuDevicePrimaryCtxRetain;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent;
  decltype(&::cuModuleLoadData) cuModuleLoadData;
  decltype(&::cuModuleGetFunction) cuModuleGetFunction;
  decltype(&::cuMemAlloc_v2) cuMemAlloc;
  decltype(&::cuMemHostAlloc) cuMemHostAlloc;
  decltype(&::cuMemcpyHtoD_v2) cuMemcpyHtoD;
  decltype(&::cuMemcpyDtoH_v2) cuMemcpyDtoH;
  decltype(&::cuMemcpyHtoDAsync_v2) cuMemcpyHtoDAsync;
  decltype(&::cuMemcpyDtoHAsync_v2) cuMemcpyDtoHAsync;
  decltype(&::cuMemsetD32Async) cuMemsetD32Async;
  decltype(&::cuLaunchKernel) cuLaunchKernel;
  decltype(&::cuStreamCreate) cuStreamCreate;
  decltype(&::cuStreamQuery) cuStreamQuery;
  decltype(&::cuStreamSynchronize) cuStreamSynchronize;
  decltype(&::cuEventCreate) cuEventCreate;
  decltype(&::cuEventRecord) cuEventRecord;
  decltype(&::cuEventSynchronize) cuEventSynchronize;
  decltype(&::cuMemHostGetDevicePointer_v2) cuMemHostGetDevicePointer;
  decltype(&::cuStreamBeginCapture_v2) cuStreamBeginCapture;
  decltype(&::cuStreamEndCapture) cuStreamEndCapture;
  decltype(&::cuGraphInstantiateWithFlags) cuGraphInstantiate;
  decltype(&::cuGraphLaunch) cuGraphLaunch;
  decltype(&::cuGraphExecDestroy) cuGraphExecDestroy;
  decltype(&::cuGraphDestroy) cuGraphDestroy;
  decltype(&::cuLaunchHostFunc) cuLaunchHostFunc;
};

/// A context on device 0, current on this thread, and the kernel of the measurements.
struct Device {
  explicit Device(const Driver& driver);

  CUcontext context = nullptr;
  /// mark(u64 address, u32 value, u32 count): the first `count` threads each store `value` plus their number; with a
  /// count of 0 it only returns.
  CUfunction mark = nullptr;
};

}  // namespace millpond::bench
