// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("tensor-maps", "descriptions of tensors: what is encoded, what is refused") {
  primary();
  if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9) skip("needs compute capability 9.0");
  CUdeviceptr data = allocate(1 << 20);
  CUtensorMap map, again;
  memset(&map, 0, sizeof map);
  memset(&again, 0, sizeof again);
  const cuuint64_t sizes[] = {256, 128}, strides[] = {1024};
  const cuuint32_t box[] = {32, 16}, steps[] = {1, 1};
  SEE(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)(uintptr_t)data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  SEE(cuTensorMapEncodeTiled(&again, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)(uintptr_t)data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  say("the same twice: %s", yes(memcmp(&map, &again, sizeof map) == 0));
  SEE(cuTensorMapReplaceAddress(&again, (void*)(uintptr_t)(data + 4096)));
  say("another now: %s", yes(memcmp(&map, &again, sizeof map) != 0));
  SEE(cuTensorMapReplaceAddress(&again, (void*)(uintptr_t)data));
  say("and as before: %s", yes(memcmp(&map, &again, sizeof map) == 0));
  SEE(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)(uintptr_t)(data + 4), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  SEE(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 6, (void*)(uintptr_t)data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  const cuuint32_t large[] = {512, 1};
  SEE(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)(uintptr_t)data, sizes, strides, large, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}
