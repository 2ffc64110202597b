// SPDX-License-Identifier: Apache-2.0
// Entry points: arrays.
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/capture.h"
#include "softgpu/driver/host/pages.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

// Brightness, followed by the two colours side by side at half the width and height. A card has these formats for video
// only.
CUresult describePlanes(const CUDA_ARRAY3D_DESCRIPTOR& wanted, Array* array) {
  const bool isEven = wanted.Width % 2 == 0 && wanted.Height % 2 == 0;
  if (wanted.NumChannels != 3 || wanted.Height == 0 || wanted.Depth != 0 || !isEven) return CUDA_ERROR_INVALID_VALUE;
  if (!(wanted.Flags & CUDA_ARRAY3D_VIDEO_ENCODE_DECODE)) return CUDA_ERROR_INVALID_VALUE;
  if (wanted.Flags & ~static_cast<unsigned>(CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE))
    return CUDA_ERROR_NOT_SUPPORTED;
  array->descriptor = wanted;
  array->elementBytes = 1;
  for (const unsigned channels : {1u, 2u}) {
    auto plane = std::make_shared<Array>();
    plane->descriptor = wanted;
    plane->descriptor.Width /= channels;
    plane->descriptor.Height /= channels;
    plane->descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    plane->descriptor.NumChannels = channels;
    plane->elementBytes = channels;
    plane->isPart = true;
    array->planes.push_back(std::move(plane));
  }
  return CUDA_SUCCESS;
}

// The validated description of a plain array, or the reason why it cannot exist.
CUresult describe(const CUDA_ARRAY3D_DESCRIPTOR& wanted, Array* array) {
  constexpr size_t kMostExtent = 131072;
  constexpr unsigned kKnown =
      CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
  if (wanted.Width == 0 || wanted.Width > kMostExtent || wanted.Height > kMostExtent || wanted.Depth > kMostExtent)
    return CUDA_ERROR_INVALID_VALUE;
  const bool isLayered = (wanted.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (wanted.Depth != 0 && wanted.Height == 0 && !isLayered) return CUDA_ERROR_INVALID_VALUE;
  if (isLayered && wanted.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  constexpr size_t kFaces = 6;
  const bool hasFaces = isLayered ? wanted.Depth % kFaces == 0 : wanted.Depth == kFaces;
  if ((wanted.Flags & CUDA_ARRAY3D_CUBEMAP) && (wanted.Width != wanted.Height || !hasFaces))
    return CUDA_ERROR_INVALID_VALUE;
  if (wanted.Format == CU_AD_FORMAT_NV12) return describePlanes(wanted, array);
  if (wanted.NumChannels != 1 && wanted.NumChannels != 2 && wanted.NumChannels != 4) return CUDA_ERROR_INVALID_VALUE;
  if (wanted.Flags & ~kKnown) return CUDA_ERROR_NOT_SUPPORTED;
  array->descriptor = wanted;
  array->elementBytes = elementBytes(wanted.Format, wanted.NumChannels);
  return array->elementBytes ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult allocate(Driver& driver, Context& context, Array& array) {
  return driver.memory().allocate(context, array.bytes(), &array.base);
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!out || !wanted) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = checkUnsafeCall()) return result;
    auto array = std::make_shared<Array>();
    if (CUresult result = describe(*wanted, array.get())) return result;
    if (CUresult result = allocate(driver, *context, *array)) return result;
    uint64_t base = array->base;
    for (const auto& plane : array->planes) {
      plane->base = base;
      base += plane->bytes();
      driver.arrays().add(plane);
    }
    *out = driver.arrays().add(std::move(array));
    return CUDA_SUCCESS;
  });
}

CUresult put(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, uint64_t bytes) {
  *out = {};
  out->size = roundUp(bytes, kPageBytes);
  out->alignment = kPageBytes;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return create(pHandle, pAllocateArray);
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (!pAllocateArray) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR wanted{};
  wanted.Width = pAllocateArray->Width;
  wanted.Height = pAllocateArray->Height;
  wanted.Format = pAllocateArray->Format;
  wanted.NumChannels = pAllocateArray->NumChannels;
  return create(pHandle, &wanted);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const auto array = driver.arrays().find(hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    if (!pArrayDescriptor) return CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = array->descriptor;
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  CUDA_ARRAY3D_DESCRIPTOR full{};
  if (CUresult result = cuArray3DGetDescriptor_v2(&full, hArray)) return result;
  if (!pArrayDescriptor) return CUDA_ERROR_INVALID_VALUE;
  *pArrayDescriptor = {full.Width, full.Height, full.Format, full.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements, CUarray hArray,
                                      CUdevice device) {
  return withDevice(device, [&](Driver& driver, Device&) -> CUresult {
    const auto array = driver.arrays().find(hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    return memoryRequirements ? put(memoryRequirements, array->bytes()) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuArrayDestroy(CUarray hArray) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (CUresult result = checkUnsafeCall()) return result;
    const auto array = driver.arrays().find(hArray);
    if (!array || array->isPart) return CUDA_ERROR_INVALID_HANDLE;
    driver.arrays().remove(hArray);
    for (const auto& plane : array->planes) driver.arrays().remove(HandleTable<Array, CUarray>::handleOf(plane.get()));
    return driver.memory().free(*context, array->base);
  });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!pHandle || !pMipmappedArrayDesc || numMipmapLevels == 0) return CUDA_ERROR_INVALID_VALUE;
    auto all = std::make_shared<MipmappedArray>();
    CUDA_ARRAY3D_DESCRIPTOR wanted = *pMipmappedArrayDesc;
    const bool isLayered = (wanted.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < numMipmapLevels && !result; ++i) {
      auto level = std::make_shared<Array>();
      level->isPart = true;
      result = wanted.Format == CU_AD_FORMAT_NV12 ? CUDA_ERROR_NOT_SUPPORTED : describe(wanted, level.get());
      if (!result) result = allocate(driver, *context, *level);
      if (!result) all->levels.push_back(std::move(level));
      if (wanted.Width <= 1 && wanted.Height <= 1 && (isLayered || wanted.Depth <= 1)) break;
      const auto halve = [](size_t& extent) {
        if (extent != 0) extent = std::max<size_t>(extent / 2, 1);
      };
      halve(wanted.Width);
      halve(wanted.Height);
      if (!isLayered) halve(wanted.Depth);
    }
    if (result) {
      for (const auto& level : all->levels) driver.memory().free(*context, level->base);
      return result;
    }
    for (const auto& level : all->levels) driver.arrays().add(level);
    *pHandle = driver.mipmappedArrays().add(std::move(all));
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const auto all = driver.mipmappedArrays().find(hMipmappedArray);
    if (!all) return CUDA_ERROR_INVALID_HANDLE;
    if (!pLevelArray || level >= all->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = HandleTable<Array, CUarray>::handleOf(all->levels[level].get());
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const auto array = driver.arrays().find(hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    if (!pPlaneArray || planeIdx >= array->planes.size()) return CUDA_ERROR_INVALID_VALUE;
    *pPlaneArray = HandleTable<Array, CUarray>::handleOf(array->planes[planeIdx].get());
    return CUDA_SUCCESS;
  });
}

// These calls need sparse arrays, which do not exist here.
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray) {
  return withDriver([](Driver&) { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray) {
  return withDriver([](Driver&) { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo*, unsigned int, CUstream) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device) {
  return withDevice(device, [&](Driver& driver, Device&) -> CUresult {
    const auto all = driver.mipmappedArrays().find(mipmap);
    if (!all) return CUDA_ERROR_INVALID_HANDLE;
    return memoryRequirements ? put(memoryRequirements, all->bytes()) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    const auto all = driver.mipmappedArrays().remove(hMipmappedArray);
    if (!all) return CUDA_ERROR_INVALID_HANDLE;
    for (const auto& level : all->levels) {
      driver.arrays().remove(HandleTable<Array, CUarray>::handleOf(level.get()));
      if (CUresult result = driver.memory().free(*context, level->base)) return result;
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
