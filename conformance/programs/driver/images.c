// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static void use(const char* what, const void* image) {
  CUmodule module;
  const CUresult status = cuModuleLoadData(&module, image);
  say("%s: %s", what, error_name(status));
  if (status != CUDA_SUCCESS) return;
  CUdeviceptr out = allocate(4 * sizeof(int));
  int results[4];
  void* parameters[] = {&out};
  launch(kernel(module, "count"), 4, 32, NULL, parameters);
  CHECK(cuMemcpyDtoH_v2(results, out, sizeof results));
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += results[i];
  say("counted %d", sum);
  CHECK(cuMemFree_v2(out));
  CHECK(cuModuleUnload(module));
}

PROGRAM("images", "images of every kind: PTX, fatbin, wrappers of it, binaries; broken ones of each") {
  primary();
  use("PTX", kernels_ptx);
  use("fatbin", kernels_fatbin);
  // What compiled programs hold: a small structure that points to the fatbin.
  struct {
    unsigned magic, version;
    const void* data;
    const void* aux;
  } wrapper = {0x466243b1, 1, kernels_fatbin, NULL};
  use("wrapper", &wrapper);
  const bool isHopper = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 9;
  if (isHopper) {
    use("cubin", kernels_cubin);
    use("fatbin of a binary", binary_only_fatbin);
  } else {
    CUmodule module;
    say("a binary of another device: %s", error_name(cuModuleLoadData(&module, binary_only_fatbin)));
  }
  unsigned char* copy = malloc(kernels_fatbin_size);
  memcpy(copy, kernels_fatbin, kernels_fatbin_size);
  memset(copy + 16, 0xff, 64);
  CUmodule module;
  say("a fatbin with a broken entry is refused: %s", yes(cuModuleLoadData(&module, copy) != CUDA_SUCCESS));
  free(copy);
  SEE(cuModuleLoadData(&module, ".version 99.9\n.target sm_75\n.address_size 64\n"));
  SEE(cuModuleLoadData(&module, ".version 7.0\n.target sm_999\n.address_size 64\n"));
  SEE(cuModuleLoadData(&module, "not PTX at all"));
  SEE(cuCtxSynchronize());
}
