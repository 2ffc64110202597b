// SPDX-License-Identifier: Apache-2.0
// A program loaded in a context: the object behind a CUmodule handle.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/texture_reference.h"
#include "softgpu/driver/model/context.h"
#include "softgpu/driver/program/function.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

/// Allocates a module's variables in its context's device memory.
class ModuleMemory final : public ptx::DeviceAllocator {
 public:
  explicit ModuleMemory(ContextPtr context) : context_(std::move(context)) {}
  uint64_t allocate(uint64_t bytes, uint64_t alignment, bool writable) override;
  void release(uint64_t address) override;

 private:
  const ContextPtr context_;
};

class Module : public std::enable_shared_from_this<Module> {
 public:
  /// CUDA_ERROR_OUT_OF_MEMORY if the device has no room for the variables.
  static CUresult load(const ContextPtr& context, std::shared_ptr<const ptx::Program> program,
                       std::shared_ptr<Module>* module);

  Module(ContextPtr context, std::unique_ptr<ModuleMemory> memory, std::unique_ptr<ptx::Module> module);

  const ContextPtr& context() const { return context_; }
  uint64_t contextId() const { return contextId_; }
  const ptx::Program& program() const { return module_->program(); }

  size_t functionCount() const { return functions_.size(); }
  /// In the order of the PTX text. The function keeps the module alive.
  std::shared_ptr<Function> function(size_t index);
  /// Null if there is no such kernel.
  std::shared_ptr<Function> function(std::string_view name);
  /// The same one each time; null if there is no such texture or surface reference.
  std::shared_ptr<TextureReference> reference(std::string_view name, ptx::Reference kind) const;
  /// The textures and surfaces for a kernel launched now; null if the module has no references. A reference bound to
  /// freed or unreadable memory counts as unbound: a kernel that uses it fails.
  std::shared_ptr<const ptx::TextureMap> boundReferences() const;
  /// CUDA_ERROR_NOT_FOUND for a variable that does not exist. Either pointer may be null.
  CUresult variable(std::string_view name, CUdeviceptr* address, size_t* bytes) const;

 private:
  const ContextPtr context_;
  const uint64_t contextId_;
  std::unique_ptr<ModuleMemory> memory_;  // outlives module_
  std::unique_ptr<ptx::Module> module_;
  std::vector<std::unique_ptr<Function>> functions_;
  std::vector<std::pair<std::string_view, std::shared_ptr<TextureReference>>> references_;  // by name
};

}  // namespace millpond::softgpu
