// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("launches", "launches: parameters in every form, their layout, shapes, what is refused") {
  primary();
  CUmodule module = kernels();
  CUfunction mixed = kernel(module, "mixed");
  for (size_t i = 0;; ++i) {
    size_t offset = 0, size = 0;
    const CUresult status = cuFuncGetParamInfo(mixed, i, &offset, &size);
    if (status != CUDA_SUCCESS) {
      say("parameter %zu: %s", i, error_name(status));
      break;
    }
    say("parameter %zu at %zu of %zu bytes", i, offset, size);
  }
  const char* name = NULL;
  CHECK(cuFuncGetName(&name, mixed));
  say("named %s", name);
  CUmodule of;
  CHECK(cuFuncGetModule(&of, mixed));
  say("of its module: %s", yes(of == module));
  CUdeviceptr in = allocate(4), out = allocate(7 * sizeof(double));
  CHECK(cuMemsetD32_v2(in, 77, 1));
  char c = -3;
  short s = 1000;
  int i = -70000;
  long long l = 1LL << 40;
  float f = 0.5f;
  double d = 1e10, results[7];
  void* parameters[] = {&c, &s, &i, &l, &f, &d, &in, &out};
  launch(mixed, 1, 1, NULL, parameters);
  CHECK(cuMemcpyDtoH_v2(results, out, sizeof results));
  say("by pointers: %g %g %g %g %g %g %g", results[0], results[1], results[2], results[3], results[4], results[5], results[6]);
  struct {
    char c;
    short s;
    int i;
    long long l;
    float f;
    double d;
    CUdeviceptr in, out;
  } packed = {5, -6, 7, -8, 9.5f, -10.25, in, out};
  size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  SEE(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  CHECK(cuMemcpyDtoH_v2(results, out, sizeof results));
  say("packed: %g %g %g %g %g %g %g", results[0], results[1], results[2], results[3], results[4], results[5], results[6]);
  SEE(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra));
  size = 0;
  SEE(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  size = sizeof packed + 1;
  SEE(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
  c = 42;
  SEE(cuLaunchKernelEx(&config, mixed, parameters, NULL));
  CHECK(cuMemcpyDtoH_v2(results, out, sizeof results));
  say("extended: %g", results[0]);
  SEE(cuLaunchKernelEx(NULL, mixed, parameters, NULL));
  CUfunction nothing = kernel(module, "nothing"), bounded = kernel(module, "bounded");
  SEE(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 0x80000000u, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 1 << 24, NULL, NULL, NULL));
  SEE(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL));
  void* outs[] = {&out};
  SEE(cuLaunchKernel(bounded, 1, 1, 1, 300, 1, 1, 0, NULL, outs, NULL));
  SEE(cuCtxSynchronize());
}
