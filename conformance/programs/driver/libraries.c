// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static int by_name(const void* a, const void* b) { return strcmp(*(const char* const*)a, *(const char* const*)b); }

PROGRAM("libraries", "libraries, which need no context: kernels, functions of them, globals, enumeration") {
  device();
  CUlibrary library;
  SEE(cuLibraryLoadData(&library, kernels_fatbin, NULL, NULL, 0, NULL, NULL, 0));
  unsigned count = 0;
  CHECK(cuLibraryGetKernelCount(&count, library));
  CUkernel all[64];
  CHECK(cuLibraryEnumerateKernels(all, count, library));
  const char* names[64];
  for (unsigned i = 0; i < count; ++i) CHECK(cuKernelGetName(&names[i], all[i]));
  qsort(names, count, sizeof *names, by_name);
  for (unsigned i = 0; i < count; ++i) say("kernel %s", names[i]);
  CUkernel add;
  SEE(cuLibraryGetKernel(&add, library, "add"));
  SEE(cuLibraryGetKernel(&add, library, "subtract"));
  CHECK(cuLibraryGetKernel(&add, library, "add"));
  CUfunction function;
  SEE(cuKernelGetFunction(&function, add));
  primary();
  SEE(cuKernelGetFunction(&function, add));
  CUlibrary of;
  CHECK(cuKernelGetLibrary(&of, add));
  say("of its library: %s", yes(of == library));
  size_t offset = 0, size = 0;
  CHECK(cuKernelGetParamInfo(add, 3, &offset, &size));
  say("last parameter at %zu of %zu bytes", offset, size);
  int value = 0;
  CHECK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add, 0));
  say("threads %d", value);
  SEE(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, add, 0));
  CHECK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, add, 0));
  say("dynamic shared memory %d", value);
  CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  say("of the function %d", value);
  SEE(cuKernelSetCacheConfig(add, CU_FUNC_CACHE_PREFER_SHARED, 0));
  CUdeviceptr a = allocate(32 * 4), b = allocate(32 * 4), c = allocate(32 * 4);
  CHECK(cuMemsetD32_v2(a, 30, 32));
  CHECK(cuMemsetD32_v2(b, 12, 32));
  unsigned n = 32;
  void* parameters[] = {&a, &b, &c, &n};
  // A kernel is used in place of a function.
  launch((CUfunction)add, 1, 32, NULL, parameters);
  int out[32];
  CHECK(cuMemcpyDtoH_v2(out, c, sizeof out));
  say("sum %d", out[31]);
  CUdeviceptr address;
  size_t bytes = 0;
  SEE(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
  CHECK(cuMemcpyDtoH_v2(out, address, 4));
  say("counter %d of %zu bytes", out[0], bytes);
  SEE(cuLibraryGetGlobal(&address, &bytes, library, "none"));
  SEE(cuLibraryGetManaged(&address, &bytes, library, "counter"));
  CUmodule module;
  SEE(cuLibraryGetModule(&module, library));
  SEE(cuModuleGetFunction(&function, module, "fill"));
  SEE(cuLibraryUnload(library));
  // Data that is not an image is detected when it is used.
  const char* const broken[] = {"rubbish", ".version 99.9\n.target sm_75\n.address_size 64\n",
                                ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry add() { no such; }\n"};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; ++i) {
    if (SEE(cuLibraryLoadData(&library, broken[i], NULL, NULL, 0, NULL, NULL, 0)) != CUDA_SUCCESS) continue;
    SEE(cuLibraryGetKernelCount(&count, library));
    SEE(cuLibraryGetKernel(&add, library, "add"));
    SEE(cuLibraryGetModule(&module, library));
    SEE(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
    SEE(cuLibraryUnload(library));
  }
  SEE(cuLibraryLoadFromFile(&library, "/no/such/file", NULL, NULL, 0, NULL, NULL, 0));
}
