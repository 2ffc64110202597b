// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static void use(CUmodule module, const char* what) {
  CUfunction fill = kernel(module, "fill");
  const CUdeviceptr data = allocate(64 * sizeof(int));
  int value = 7;
  unsigned n = 64;
  void* parameters[] = {(void*)&data, &value, &n};
  launch(fill, 1, 64, NULL, parameters);
  int out[64];
  CHECK(cuMemcpyDtoH_v2(out, data, sizeof out));
  CHECK(cuMemFree_v2(data));
  say("%s: %d … %d", what, out[0], out[63]);
}

PROGRAM("modules", "modules from PTX, cubin and fatbin; functions, globals, what is wrong with images") {
  primary();
  CUmodule module;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  use(module, "PTX");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CHECK(cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
  float table[16];
  CHECK(cuMemcpyDtoH_v2(table, address, sizeof table));
  say("table: %zu bytes, %g %g %g %g", bytes, table[0], table[1], table[2], table[3]);
  CHECK(cuModuleGetGlobal_v2(&address, &bytes, module, "box"));
  int box[64];
  for (int i = 0; i < 64; ++i) box[i] = i * 5;
  CHECK(cuMemcpyHtoD_v2(address, box, sizeof box));
  const CUdeviceptr out = allocate(64 * sizeof(int)), reals = allocate(16 * sizeof(float));
  void* parameters[] = {(void*)&out, (void*)&reals};
  launch(kernel(module, "globals"), 1, 64, NULL, parameters);
  CHECK(cuMemcpyDtoH_v2(box, out, sizeof box));
  say("constants: %d %d", box[1], box[63]);
  CHECK(cuModuleGetGlobal_v2(NULL, &bytes, module, "counter"));
  say("counter: %zu bytes", bytes);
  SEE(cuModuleGetGlobal_v2(&address, &bytes, module, "no_such_variable"));
  CUfunction function;
  SEE(cuModuleGetFunction(&function, module, "no_such_kernel"));
  unsigned count = 0;
  SEE(cuModuleGetFunctionCount(&count, module));
  say("%u functions", count);
  CHECK(cuModuleUnload(module));

  CHECK(cuModuleLoadFatBinary(&module, kernels_fatbin));
  use(module, "fatbin");
  CHECK(cuModuleUnload(module));
  CHECK(cuModuleLoadData(&module, kernels_fatbin));
  CUmodule second;
  CHECK(cuModuleLoadData(&second, kernels_fatbin));
  CUdeviceptr other = 0;
  CHECK(cuModuleGetGlobal_v2(&address, &bytes, module, "counter"));
  CHECK(cuModuleGetGlobal_v2(&other, &bytes, second, "counter"));
  say("two modules have two variables: %s", yes(address != other));
  CHECK(cuModuleUnload(second));
  CHECK(cuModuleUnload(module));

  SEE(cuModuleLoadData(&module, ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry k() { frobnicate; }\n"));
  SEE(cuModuleLoadData(&module, ""));
  SEE(cuModuleLoadData(&module, NULL));
  SEE(cuModuleLoad(&module, "/no/such/file.ptx"));
  CUmoduleLoadingMode mode = 0;
  CHECK(cuModuleGetLoadingMode(&mode));
  say("loading mode %d", (int)mode);
  SEE(cuCtxSynchronize());
}
