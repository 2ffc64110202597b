// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("images", "images that every device takes: PTX, fatbin, wrappers of it; broken ones of each") {
  primary();
  use_image("PTX", kernels_ptx);
  use_image("fatbin", kernels_fatbin);
  // The structure in compiled programs that points to the fatbin.
  struct {
    unsigned magic, version;
    const void* data;
    const void* aux;
  } wrapper = {0x466243b1, 1, kernels_fatbin, NULL};
  use_image("wrapper", &wrapper);
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
