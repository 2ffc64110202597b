// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/program/module.h"

#include <algorithm>

#include "softgpu/driver/host/log.h"
#include "softgpu/driver/memory/device_memory.h"
#include "softgpu/driver/memory/texture_views.h"

namespace millpond::softgpu {

uint64_t ModuleMemory::allocate(uint64_t bytes, uint64_t alignment, bool writable) {
  return DeviceMemory::instance().memory().allocateVariable(*context_, bytes, alignment, writable);
}

void ModuleMemory::release(uint64_t address) { DeviceMemory::instance().memory().releaseVariable(address); }

CUresult Module::load(const ContextPtr& context, std::shared_ptr<const ptx::Program> program,
                      std::shared_ptr<Module>* module) {
  for (const ptx::KernelInfo& kernel : program->kernels()) {
    ContextMemory& own = context->ownMemory();
    if ((kernel.prints && !own.takePrints()) || (kernel.usesHeap && !own.takeAllocates()))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto memory = std::make_unique<ModuleMemory>(context);
  Result<std::unique_ptr<ptx::Module>> created = ptx::Module::create(std::move(program), *memory);
  if (!created) {
    log(LogLevel::warn, created.error().message);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *module = std::make_shared<Module>(context, std::move(memory), std::move(*created));
  return CUDA_SUCCESS;
}

Module::Module(ContextPtr context, std::unique_ptr<ModuleMemory> memory, std::unique_ptr<ptx::Module> module)
    : context_(std::move(context)), contextId_(context_->id()), memory_(std::move(memory)), module_(std::move(module)) {
  for (const ptx::Kernel& kernel : module_->kernels()) {
    functions_.push_back(std::make_unique<Function>(*this, contextId_, kernel));
  }
  for (const ptx::ReferenceSymbol& symbol : module_->references()) {
    references_.emplace_back(symbol.name,
                             std::make_shared<TextureReference>(contextId_, this, symbol.kind, symbol.address));
  }
  for (const ptx::VariableInfo& variable : program().variables()) {
    if (!variable.isManaged) continue;
    if (const std::optional<ptx::Symbol> symbol = module_->variable(variable.name))
      DeviceMemory::instance().memory().space().setManaged(symbol->address);
  }
}

std::shared_ptr<Function> Module::function(size_t index) { return {shared_from_this(), functions_[index].get()}; }

std::shared_ptr<Function> Module::function(std::string_view name) {
  const ptx::Kernel* kernel = module_->kernel(name);
  return kernel ? function(kernel->index()) : nullptr;
}

std::shared_ptr<TextureReference> Module::reference(std::string_view name, ptx::Reference kind) const {
  for (const auto& [known, reference] : references_)
    if (known == name && reference->kind() == kind) return reference;
  return nullptr;
}

std::shared_ptr<const ptx::TextureMap> Module::boundReferences() const {
  if (references_.empty()) return nullptr;
  DeviceMemory& device = DeviceMemory::instance();
  auto bound = std::make_shared<BoundTextures>(device.textures());
  for (const auto& [name, reference] : references_) {
    const TextureReference::State state = reference->state();
    ptx::TextureView view;
    if (state.isBound && viewOfReference(device, state, reference->kind(), &view) == CUDA_SUCCESS)
      bound->add(reference->address(), view);
  }
  return bound;
}

CUresult Module::variable(std::string_view name, CUdeviceptr* address, size_t* bytes) const {
  const auto isReference = [&](const auto& each) { return each.first == name; };
  if (std::any_of(references_.begin(), references_.end(), isReference)) return CUDA_ERROR_INVALID_VALUE;
  // Whether the PTX contains .visible does not matter: compilers leave it out for variables that programs look up.
  const std::optional<ptx::Symbol> symbol = module_->variable(name);
  if (!symbol) return CUDA_ERROR_NOT_FOUND;
  if (address) *address = symbol->address;
  if (bytes) *bytes = symbol->bytes;
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu
