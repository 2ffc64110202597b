// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static void about(const char* what, CUdeviceptr pointer) {
  CUmemorytype type = (CUmemorytype)0;
  const CUresult status = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
  int ordinal = 0, managed = 0, mapped = 0;
  CUdeviceptr start = 0;
  size_t size = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MAPPED,
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&ordinal, &managed, &mapped, &start, &size};
  const CUresult many = cuPointerGetAttributes(5, attributes, values, pointer);
  say("%s: %s type %d; %s device %d, managed %d, mapped %d, offset %lld, size %zu", what, error_name(status), (int)type, error_name(many), ordinal,
      managed, mapped, start ? (long long)(pointer - start) : -1LL, size);
}

PROGRAM("pointers", "attributes of pointers: device, pinned, variables, ordinary memory, nothing") {
  CUcontext context = primary();
  CUdeviceptr memory = allocate(1000);
  about("device", memory);
  about("inside", memory + 999);
  CUmodule module = kernels();
  CUdeviceptr variable = 0;
  size_t bytes = 0;
  CHECK(cuModuleGetGlobal_v2(&variable, &bytes, module, "counter"));
  CUmemorytype type = (CUmemorytype)0;
  SEE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, variable));
  say("variable: type %d", (int)type);
  int local = 0;
  about("ordinary", (CUdeviceptr)(uintptr_t)&local);
  about("null", 0);
  CUcontext of = NULL;
  CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  say("of this context: %s", yes(of == context));
  unsigned long long first = 0, second = 0;
  CHECK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  CUdeviceptr other = allocate(1000);
  CHECK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
  say("buffers have ids of their own: %s", yes(first != second && first != 0));
  int sync = 1;
  SEE(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  SEE(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  SEE(cuPointerGetAttribute(&first, (CUpointer_attribute)999, memory));
  CHECK(cuMemFree_v2(other));
  SEE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, other));
}
