// SPDX-License-Identifier: Apache-2.0
#include "testing/model/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace millpond::model {

void* driverSymbol(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library ? ::dlsym(library, name) : nullptr;
  if (found) return found;
  std::fprintf(stderr, "%s: %s\n", name, ::dlerror());
  std::exit(2);
}

const char* errorName(CUresult result) {
  const char* name = nullptr;
  return CU(cuGetErrorName)(result, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

void give(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  ::_exit(1);
}

}  // namespace millpond::model
