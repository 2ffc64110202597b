// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "conformance.h"

PROGRAM("runtime-version", "versions of driver and runtime, device count, entry points by name") {
  int driver = 0, runtime = 0, count = 0;
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaGetDeviceCount(&count));
  say("runtime %d, driver not older: %s, devices %d", runtime, driver >= 13000 ? "yes" : "no", count);
  say("the runtime is a library of its own: %s", dlsym(RTLD_DEFAULT, "cudaMalloc") != nullptr ? "yes" : "no");
  for (const char* name : {"cuMemAlloc", "cuStreamBeginCapture", "cuLaunchKernelEx", "cuNoSuchFunction"}) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &entry, 13000, cudaEnableDefault, &result);
    say("%s: %s, result %d, %s", name, cudaGetErrorName(status), static_cast<int>(result), entry ? "found" : "none");
  }
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuLaunchKernelEx", &entry, 10000, cudaEnableDefault, &result);
  say("a function newer than the version asked for: %s, result %d", cudaGetErrorName(status), static_cast<int>(result));
}
