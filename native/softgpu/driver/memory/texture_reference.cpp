// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/texture_reference.h"

#include <algorithm>

namespace millpond::softgpu {
CUresult viewOfReference(Driver& driver, const TextureReference::State& state, ptx::Reference kind,
                         ptx::TextureView* view) {
  CUDA_RESOURCE_DESC resource = state.resource;
  const bool isLine = resource.resType == CU_RESOURCE_TYPE_LINEAR;
  if (isLine) {
    resource.res.linear.format = state.format;
    resource.res.linear.numChannels = state.channels;
  }
  if (CUresult result = viewOf(driver, resource, view)) return result;
  if (kind == ptx::Reference::kSurface) return CUDA_SUCCESS;
  return applySampling(isLine ? samplingOfLine(state.sampling) : state.sampling, view);
}

bool BoundTextures::find(uint64_t number, ptx::TextureView& view) const {
  const auto bound = std::find_if(bound_.begin(), bound_.end(), [&](const auto& each) { return each.first == number; });
  if (bound == bound_.end()) return objects_.find(number, view);
  view = bound->second;
  return true;
}

}  // namespace millpond::softgpu
