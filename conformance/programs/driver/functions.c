// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static int value_of(CUfunction function, CUfunction_attribute which) {
  int value = -99;
  CHECK(cuFuncGetAttribute(&value, which, function));
  return value;
}

PROGRAM("functions", "functions of modules: attributes, settings, loading, enumeration, occupancy") {
  primary();
  CUmodule module = kernels();
  unsigned count = 0;
  CHECK(cuModuleGetFunctionCount(&count, module));
  CUfunction all[64];
  CHECK(cuModuleEnumerateFunctions(all, count, module));
  unsigned named = 0;
  for (unsigned i = 0; i < count; ++i) {
    const char* name = NULL;
    CHECK(cuFuncGetName(&name, all[i]));
    named += name && name[0] != 0;
  }
  say("%u functions, %u named", count, named);
  CUfunction bounded = kernel(module, "bounded"), stacked = kernel(module, "stacked"), dynamic = kernel(module, "dynamic");
  say("bounded: threads %d, shared %d", value_of(bounded, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), value_of(bounded, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  say("stacked: local memory %s", value_of(stacked, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) >= 1024 ? "for its array" : "less");
  say("constant memory of the module %d", value_of(dynamic, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
  say("dynamic: at most %d", value_of(dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  SEE(cuFuncSetAttribute(dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  say("dynamic: at most %d", value_of(dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  SEE(cuFuncSetAttribute(dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 24));
  SEE(cuFuncSetAttribute(dynamic, CU_FUNC_ATTRIBUTE_NUM_REGS, 10));
  SEE(cuFuncSetAttribute(dynamic, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100));
  say("carveout %d", value_of(dynamic, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT));
  SEE(cuFuncSetCacheConfig(dynamic, CU_FUNC_CACHE_PREFER_EQUAL));
  CUdeviceptr out = allocate(4);
  unsigned words = 15000;
  void* parameters[] = {&out, &words};
  SEE(cuLaunchKernel(dynamic, 1, 1, 1, 128, 1, 1, 60000, NULL, parameters, NULL));
  int sum = 0;
  CHECK(cuMemcpyDtoH_v2(&sum, out, 4));
  say("sum %d", sum);
  CUfunctionLoadingState state;
  SEE(cuFuncIsLoaded(&state, bounded));
  SEE(cuFuncLoad(bounded));
  SEE(cuFuncIsLoaded(&state, bounded));
  say("loaded %d", (int)state);
  int blocks = 0;
  SEE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 128, 0));
  say("blocks: %s", blocks > 0 ? "some" : "none");
  size_t bytes = 0;
  SEE(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, dynamic, 1, 128));
  int grid = 0, block = 0;
  SEE(cuOccupancyMaxPotentialBlockSize(&grid, &block, bounded, NULL, 0, 0));
  say("suggested block within the bounds: %s", yes(block > 0 && block <= 128));
  int value = 0;
  SEE(cuFuncGetAttribute(&value, (CUfunction_attribute)99, bounded));
  SEE(cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, bounded));
  SEE(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL));
}
