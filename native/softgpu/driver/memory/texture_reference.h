// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: the memory that a program has bound to them, and the form for launches.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/texture_objects.h"
#include "softgpu/ptx/texture.h"

namespace millpond::softgpu {

class Module;

class TextureReference {
 public:
  /// By default, coordinates outside are clamped to the nearest element.
  static CUDA_TEXTURE_DESC defaultSampling() {
    CUDA_TEXTURE_DESC sampling{};
    for (CUaddress_mode& mode : sampling.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
    return sampling;
  }
  struct State {
    bool isBound = false;
    CUDA_RESOURCE_DESC resource{};                   // where it is bound
    CUDA_TEXTURE_DESC sampling = defaultSampling();  // of textures only
    CUarray_format format = CU_AD_FORMAT_FLOAT;
    unsigned channels = 1;
  };

  /// `module`: the module whose variable it is, at `address`; null for a reference that the program created.
  TextureReference(uint64_t context, const Module* module, ptx::Reference kind, uint64_t address)
      : context_(context), module_(module), kind_(kind), address_(address) {}

  uint64_t contextId() const { return context_; }
  const Module* module() const { return module_; }
  ptx::Reference kind() const { return kind_; }
  uint64_t address() const { return address_; }

  State state() const {
    std::lock_guard lock(mutex_);
    return state_;
  }
  template <typename Body>
  CUresult change(Body body) {
    std::lock_guard lock(mutex_);
    return body(state_);
  }

 private:
  const uint64_t context_;  // Context::id of the owner
  const Module* const module_;
  const ptx::Reference kind_;
  const uint64_t address_;
  mutable std::mutex mutex_;
  State state_;
};

/// The references of a module at the time when one of its kernels was launched, and all objects.
class BoundTextures final : public ptx::TextureMap {
 public:
  explicit BoundTextures(const TextureObjects& objects) : objects_(objects) {}
  void add(uint64_t address, const ptx::TextureView& view) { bound_.emplace_back(address, view); }

  bool find(uint64_t number, ptx::TextureView& view) const override;

 private:
  const TextureObjects& objects_;
  std::vector<std::pair<uint64_t, ptx::TextureView>> bound_;
};

}  // namespace millpond::softgpu
