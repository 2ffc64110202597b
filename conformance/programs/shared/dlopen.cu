// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "conformance.h"

PROGRAM("dlopen", "the driver's library loaded and given back by hand, beside the runtime that uses it") {
  using Init = int (*)(unsigned);
  using Count = int (*)(int*);
  for (int round = 0; round < 3; ++round) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      say("cannot be loaded");
      std::exit(1);
    }
    const auto init = reinterpret_cast<Init>(dlsym(library, "cuInit"));
    const auto count = reinterpret_cast<Count>(dlsym(library, "cuDeviceGetCount"));
    int devices = -1;
    const int initialised = init(0), counted = count(&devices);
    say("round %d: %d %d, %d devices, closed %d", round, initialised, counted, devices, dlclose(library));
    if (round == 1) {
      conformance::Device<int> memory(16);
      SEE(cudaMemset(memory, 0, 64));
    }
  }
  SEE(cudaDeviceSynchronize());
}
