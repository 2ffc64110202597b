// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "driver.h"

PROGRAM("dlclose", "the library opened again and closed while it is in use") {
  void* again = dlopen("libcuda.so.1", RTLD_NOW);
  say("opened: %s", yes(again != NULL));
  CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(again, "cuInit");
  say("the same function: %s", yes((void*)init == dlsym(RTLD_DEFAULT, "cuInit")));
  primary();
  CUdeviceptr memory = allocate(64);
  say("closed: %d", dlclose(again));
  CHECK(cuMemsetD32_v2(memory, 5, 16));
  unsigned out[16];
  CHECK(cuMemcpyDtoH_v2(out, memory, sizeof out));
  say("it goes on: %u", out[15]);
  CUdeviceptr base;
  SEE(cuMemGetAddressRange_v2(&base, NULL, memory));
  CHECK(cuMemFree_v2(memory));
}
