// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/texture_views.h"

namespace millpond::softgpu {

CUresult viewOf(DeviceMemory& device, const CUDA_RESOURCE_DESC& resource, ptx::TextureView* view) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const auto array = device.arrays().find(resource.res.array.hArray);
      return array ? viewOfArray(*array, view) : CUDA_ERROR_INVALID_HANDLE;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto all = device.mipmappedArrays().find(resource.res.mipmap.hMipmappedArray);
      return all ? viewOfLevels(*all, view) : CUDA_ERROR_INVALID_HANDLE;
    }
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D: {
      if (CUresult result = viewOfMemory(resource, view)) return result;
      const uint64_t bytes = view->rowBytes * (view->height - 1) + uint64_t{view->width} * view->elementBytes();
      return device.memory().space().covers(view->base, bytes, Access::read) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult viewOfReference(DeviceMemory& device, const TextureReference::State& state, ptx::Reference kind,
                         ptx::TextureView* view) {
  CUDA_RESOURCE_DESC resource = state.resource;
  const bool isLine = resource.resType == CU_RESOURCE_TYPE_LINEAR;
  if (isLine) {
    resource.res.linear.format = state.format;
    resource.res.linear.numChannels = state.channels;
  }
  if (CUresult result = viewOf(device, resource, view)) return result;
  if (kind == ptx::Reference::kSurface) return CUDA_SUCCESS;
  return applySampling(isLine ? samplingOfLine(state.sampling) : state.sampling, view);
}

}  // namespace millpond::softgpu
