// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects: their descriptions, and the form that kernels use.
#pragma once

#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/ptx/texture.h"

namespace millpond::softgpu {

struct TextureObject {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};  // of textures only
  bool isSurface = false;
  uint64_t context = 0;  // Context::id of the owner
  ptx::TextureView view;
};

class TextureObjects final : public ptx::TextureMap {
 public:
  unsigned long long add(const TextureObject& object);
  /// Null if there is no such object of that kind.
  std::shared_ptr<const TextureObject> get(unsigned long long number, bool isSurface) const;
  bool remove(unsigned long long number, bool isSurface);
  void removeOwnedBy(uint64_t context);

  bool find(uint64_t number, ptx::TextureView& view) const override;

 private:
  mutable std::shared_mutex mutex_;
  unsigned long long last_ = 0;
  std::unordered_map<unsigned long long, std::shared_ptr<const TextureObject>> objects_;
};

/// How kernels see an array; CUDA_ERROR_NOT_SUPPORTED for arrays that they cannot read here.
CUresult viewOfArray(const Array& array, ptx::TextureView* view);
CUresult viewOfLevels(const MipmappedArray& all, ptx::TextureView* view);
/// How they see memory that is described without an array. The addresses are not checked.
CUresult viewOfMemory(const CUDA_RESOURCE_DESC& resource, ptx::TextureView* view);
/// How a texture reads that memory.
CUresult applySampling(const CUDA_TEXTURE_DESC& texture, ptx::TextureView* view);
/// Address and filter modes do not apply to memory without rows: reads outside of it return zero.
CUDA_TEXTURE_DESC samplingOfLine(const CUDA_TEXTURE_DESC& wanted);
/// Whether a view of a resource adds nothing to the resource itself.
bool isPlainView(const CUDA_RESOURCE_VIEW_DESC& wanted, const ptx::TextureView& view);

}  // namespace millpond::softgpu
