// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

enum { kSide = 1024 };

static CUarray make(unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.Width = kSide;
  wanted.Height = kSide;
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  wanted.NumChannels = 1;
  wanted.Flags = flags;
  CUarray array = NULL;
  CHECK(cuArray3DCreate_v2(&array, &wanted));
  return array;
}

static CUmemGenericAllocationHandle tile_pool(size_t bytes) {
  CUmemAllocationProp wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  size_t step = 0;
  CHECK(cuMemGetAllocationGranularity(&step, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle memory = 0;
  CHECK(cuMemCreate(&memory, (bytes + step - 1) / step * step, &wanted, 0));
  return memory;
}

static CUarrayMapInfo whole(CUarray array, CUmemGenericAllocationHandle memory) {
  CUarrayMapInfo entry;
  memset(&entry, 0, sizeof entry);
  entry.resourceType = CU_RESOURCE_TYPE_ARRAY;
  entry.resource.array = array;
  entry.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  entry.memOperationType = memory ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
  entry.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  entry.memHandle.memHandle = memory;
  entry.deviceBitMask = 1;
  return entry;
}

static CUarrayMapInfo tile(CUarray array, CUmemGenericAllocationHandle memory, const CUDA_ARRAY_SPARSE_PROPERTIES* shape) {
  CUarrayMapInfo entry = whole(array, memory);
  entry.subresource.sparseLevel.extentWidth = shape->tileExtent.width;
  entry.subresource.sparseLevel.extentHeight = shape->tileExtent.height;
  entry.subresource.sparseLevel.extentDepth = shape->tileExtent.depth;
  return entry;
}

/// Writes the corner of an array and reads it again.
static void turn_over(CUarray array, size_t width, size_t height) {
  unsigned* const words = malloc(2 * width * height * sizeof *words);
  if (!words) exit(1);
  unsigned* const found = words + width * height;
  for (size_t i = 0; i < width * height; ++i) words[i] = (unsigned)(i * 2654435761u);
  CUDA_MEMCPY2D there;
  memset(&there, 0, sizeof there);
  there.srcMemoryType = CU_MEMORYTYPE_HOST;
  there.srcHost = words;
  there.srcPitch = width * sizeof *words;
  there.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  there.dstArray = array;
  there.WidthInBytes = width * sizeof *words;
  there.Height = height;
  SEE(cuMemcpy2D_v2(&there));
  CUDA_MEMCPY2D back;
  memset(&back, 0, sizeof back);
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = found;
  back.dstPitch = width * sizeof *words;
  back.WidthInBytes = width * sizeof *words;
  back.Height = height;
  SEE(cuMemcpy2D_v2(&back));
  say("  comes back: %s", yes(memcmp(words, found, width * height * sizeof *words) == 0));
  free(words);
}

static void tiles(CUstream stream) {
  const CUarray array = make(CUDA_ARRAY3D_SPARSE);
  CUDA_ARRAY_SPARSE_PROPERTIES shape;
  memset(&shape, 0, sizeof shape);
  CHECK(cuArrayGetSparseProperties(&shape, array));
  say("tiles of %u × %u × %u, tail from level %u of %llu bytes, flags %#x", shape.tileExtent.width,
      shape.tileExtent.height, shape.tileExtent.depth, shape.miptailFirstLevel, shape.miptailSize, shape.flags);
  const CUmemGenericAllocationHandle memory = tile_pool(1 << 16);
  CUarrayMapInfo entry = tile(array, memory, &shape);
  SEE(cuMemMapArrayAsync(&entry, 1, stream));
  SEE(cuStreamSynchronize(stream));
  turn_over(array, shape.tileExtent.width, shape.tileExtent.height);
  SEE(cuMemMapArrayAsync(&entry, 0, stream));
  SEE(cuMemMapArrayAsync(NULL, 1, stream));
  entry.deviceBitMask = 0;
  SEE(cuMemMapArrayAsync(&entry, 1, stream));
  entry.deviceBitMask = 1;
  entry.flags = 1;
  SEE(cuMemMapArrayAsync(&entry, 1, stream));
  entry.flags = 0;
  entry.subresource.sparseLevel.offsetX = 1;
  SEE(cuMemMapArrayAsync(&entry, 1, stream));
  // Released memory persists for as long as it is mapped.
  SEE(cuMemRelease(memory));
  turn_over(array, shape.tileExtent.width, shape.tileExtent.height);
  entry = tile(array, 0, &shape);
  SEE(cuMemMapArrayAsync(&entry, 1, stream));
  SEE(cuStreamSynchronize(stream));
  CHECK(cuArrayDestroy(array));
}

static void later(CUstream stream) {
  if (!attribute(CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED)) return say("no arrays whose memory comes later");
  const CUarray array = make(CUDA_ARRAY3D_DEFERRED_MAPPING);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
  memset(&needs, 0, sizeof needs);
  CHECK(cuArrayGetMemoryRequirements(&needs, array, 0));
  say("needs %zu bytes, aligned to %zu", needs.size, needs.alignment);
  const CUmemGenericAllocationHandle memory = tile_pool(needs.size);
  CUarrayMapInfo entry = whole(array, memory);
  SEE(cuMemMapArrayAsync(&entry, 1, stream));
  SEE(cuStreamSynchronize(stream));
  turn_over(array, kSide, kSide);
  entry = whole(array, 0);
  SEE(cuMemMapArrayAsync(&entry, 1, stream));
  SEE(cuStreamSynchronize(stream));
  SEE(cuMemRelease(memory));
  CHECK(cuArrayDestroy(array));
}

PROGRAM("sparse-arrays", "arrays whose memory is mapped to them, by tiles and as a whole") {
  primary();
  CUDA_ARRAY_SPARSE_PROPERTIES shape;
  const CUarray plain = make(0);
  SEE(cuArrayGetSparseProperties(&shape, plain));
  SEE(cuArrayGetSparseProperties(NULL, plain));
  SEE(cuArrayGetSparseProperties(&shape, NULL));
  SEE(cuMipmappedArrayGetSparseProperties(&shape, NULL));
  CUarrayMapInfo entry = whole(plain, 0);
  SEE(cuMemMapArrayAsync(&entry, 1, NULL));
  CHECK(cuArrayDestroy(plain));
  if (!attribute(CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED)) skip("the device has no sparse arrays");
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  tiles(stream);
  later(stream);
  CHECK(cuStreamDestroy_v2(stream));
}
