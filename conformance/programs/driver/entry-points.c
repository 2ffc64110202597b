// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "driver.h"

static void find(const char* name, int version, cuuint64_t flags) {
  void* address = (void*)1;
  CUdriverProcAddressQueryResult result = (CUdriverProcAddressQueryResult)99;
  const CUresult status = cuGetProcAddress_v2(name, &address, version, flags, &result);
  Dl_info info;
  const char* variant = address && status == CUDA_SUCCESS && dladdr(address, &info) && info.dli_fname ? "in the library" : "none";
  say("%s %d %llu: %s, result %d, %s", name, version, (unsigned long long)flags, error_name(status), (int)result, variant);
}

PROGRAM("entry-points", "functions by name and version: variants, what is unknown or too new") {
  CHECK(cuInit(0));
  find("cuInit", 2000, 0);
  find("cuMemAlloc", 3020, 0);
  find("cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  find("cuLaunchKernel", 4000, 0);
  find("cuLaunchKernel", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  find("cuLaunchKernelEx", 11060, 0);
  find("cuLaunchKernelEx", 11050, 0);
  find("cuGraphAddNode", 12020, 0);
  find("cuStreamGetCaptureInfo", 12030, 0);
  find("cuStreamGetCaptureInfo", 10000, 0);
  find("cuNoSuchFunction", 13000, 0);
  find("notcuda", 13000, 0);
  find("", 0, 0);
  find("cuInit", 99000, 0);
  find("cuInit", 13000, 77);
  // Older and newer variants are different functions.
  void *old = NULL, *new = NULL;
  CHECK(cuGetProcAddress_v2("cuEventElapsedTime", &old, 2000, 0, NULL));
  CHECK(cuGetProcAddress_v2("cuEventElapsedTime", &new, 12080, 0, NULL));
  say("variants differ: %s", yes(old != new));
}
