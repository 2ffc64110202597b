// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("linking", "parts of a program linked as it runs: PTX with PTX, the cubin that comes of it, what is missing") {
  primary();
  char info[2048] = {0}, errors[2048] = {0};
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {info, (void*)sizeof info, errors, (void*)sizeof errors};
  CUlinkState state;
  SEE(cuLinkCreate_v2(4, options, values, &state));
  SEE(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void*)link_a_ptx, link_a_ptx_size, "a.ptx", 0, NULL, NULL));
  SEE(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void*)link_b_ptx, link_b_ptx_size, "b.ptx", 0, NULL, NULL));
  void* image = NULL;
  size_t size = 0;
  SEE(cuLinkComplete(state, &image, &size));
  say("an image: %s", yes(image != NULL && size > 0));
  CUmodule module;
  SEE(cuModuleLoadData(&module, image));
  SEE(cuLinkDestroy(state));
  CUdeviceptr out = allocate(16 * 4);
  void* parameters[] = {&out};
  launch(kernel(module, "linked"), 1, 16, NULL, parameters);
  int results[16];
  CHECK(cuMemcpyDtoH_v2(results, out, sizeof results));
  say("linked: %d %d", results[0], results[15]);
  CUdeviceptr address;
  size_t bytes;
  SEE(cuModuleGetGlobal_v2(&address, &bytes, module, "shift"));
  const int shift = 5;
  CHECK(cuMemcpyHtoD_v2(address, &shift, sizeof shift));
  launch(kernel(module, "linked"), 1, 16, NULL, parameters);
  CHECK(cuMemcpyDtoH_v2(results, out, sizeof results));
  say("shifted: %d", results[15]);
  CHECK(cuModuleUnload(module));
  CHECK(cuLinkCreate_v2(4, options, values, &state));
  CHECK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void*)link_a_ptx, link_a_ptx_size, "a.ptx", 0, NULL, NULL));
  const CUresult status = cuLinkComplete(state, &image, &size);
  say("a part alone fails: %s, and tells of twice: %s", yes(status != CUDA_SUCCESS), yes(strstr(errors, "twice") != NULL));
  CHECK(cuLinkDestroy(state));
  CHECK(cuLinkCreate_v2(0, NULL, NULL, &state));
  SEE(cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, "/no/such/file.ptx", 0, NULL, NULL));
  SEE(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, NULL, 10, "none", 0, NULL, NULL));
  CHECK(cuLinkDestroy(state));
}
