// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static const char broken[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry k(.param .u64 p)\n{\n  .reg .u32 %r<2>;\n  add.u32 %r1, %r0, %undeclared;\n  ret;\n}\n";

PROGRAM("jit", "compiling PTX with options: logs of information and errors, targets, times") {
  primary();
  char info[4096] = {0}, errors[4096] = {0};
  float wall = -1;
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_WALL_TIME};
  void* values[] = {info, (void*)sizeof info, errors, (void*)sizeof errors, (void*)1, (void*)2, NULL};
  CUmodule module;
  SEE(cuModuleLoadDataEx(&module, kernels_ptx, 7, options, values));
  memcpy(&wall, &values[6], sizeof wall);
  say("errors: %s, time told: %s", errors[0] ? "some" : "none", yes(wall >= 0));
  CHECK(cuModuleUnload(module));
  memset(errors, 0, sizeof errors);
  values[1] = (void*)sizeof info, values[3] = (void*)sizeof errors;
  SEE(cuModuleLoadDataEx(&module, broken, 5, options, values));
  say("the log tells of an error: %s, its length is told: %s", yes(strstr(errors, "undeclared") != NULL),
      yes((size_t)values[3] > 0 && (size_t)values[3] <= sizeof errors));
  // A buffer that is too small is filled and terminated.
  char small[16];
  memset(small, 'x', sizeof small);
  CUjit_option few[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* few_values[] = {small, (void*)sizeof small};
  SEE(cuModuleLoadDataEx(&module, broken, 2, few, few_values));
  say("a small buffer ends: %s", yes(memchr(small, 0, sizeof small) != NULL));
  CUjit_option target[] = {CU_JIT_MAX_REGISTERS, CU_JIT_TARGET_FROM_CUCONTEXT, CU_JIT_GENERATE_LINE_INFO};
  void* target_values[] = {(void*)32, NULL, (void*)1};
  SEE(cuModuleLoadDataEx(&module, kernels_ptx, 3, target, target_values));
  int value = 0;
  CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel(module, "add")));
  say("at most 32 registers: %s", yes(value <= 32));
  CHECK(cuModuleUnload(module));
  SEE(cuModuleLoadDataEx(&module, kernels_ptx, 0, NULL, NULL));
  CHECK(cuModuleUnload(module));
}
