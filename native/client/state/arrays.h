// SPDX-License-Identifier: Apache-2.0
// Descriptions of the program's arrays, textures and surfaces, which it can read back and copies use.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

struct ArrayInfo {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  uint32_t elementBytes = 0;
  /// The handles of the levels of a mipmapped array, or of the planes of a multi-planar array; 0 for those that were
  /// not requested. They end with the array.
  std::vector<uint64_t> parts;
  bool isPart = false;
};

struct TextureInfo {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
  bool isSurface = false;
};

class Arrays {
 public:
  void add(uint64_t handle, const ArrayInfo& info) {
    std::lock_guard lock(mutex_);
    arrays_[handle] = info;
  }
  void drop(uint64_t handle) {
    std::lock_guard lock(mutex_);
    arrays_.erase(handle);
  }
  std::optional<ArrayInfo> find(const void* handle) const {
    std::lock_guard lock(mutex_);
    const auto found = arrays_.find(reinterpret_cast<uint64_t>(handle));
    return found == arrays_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Stores the handle of a part, unless another thread was faster; returns the stored handle.
  uint64_t addPart(const void* whole, size_t part, uint64_t handle) {
    std::lock_guard lock(mutex_);
    const auto found = arrays_.find(reinterpret_cast<uint64_t>(whole));
    if (found == arrays_.end()) return handle;
    uint64_t& known = found->second.parts[part];
    if (known == 0) known = handle;
    return known;
  }
  void addTexture(uint64_t object, const TextureInfo& info) {
    std::lock_guard lock(mutex_);
    textures_[object] = info;
  }
  std::optional<TextureInfo> findTexture(uint64_t object, bool isSurface) const {
    std::lock_guard lock(mutex_);
    const auto found = textures_.find(object);
    if (found == textures_.end() || found->second.isSurface != isSurface) return std::nullopt;
    return found->second;
  }
  bool dropTexture(uint64_t object, bool isSurface) {
    std::lock_guard lock(mutex_);
    const auto found = textures_.find(object);
    if (found == textures_.end() || found->second.isSurface != isSurface) return false;
    textures_.erase(found);
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, ArrayInfo> arrays_;
  std::map<uint64_t, TextureInfo> textures_;
};

}  // namespace millpond::client
