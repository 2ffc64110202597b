// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/program/library.h"

#include "softgpu/driver/model/device.h"

namespace millpond::softgpu {

FunctionSettings LibraryKernel::settingsOn(const Device& device) {
  std::lock_guard lock(mutex_);
  const auto position = settings_.find(device.ordinal());
  return position == settings_.end() ? FunctionSettings(info_) : position->second;
}

CUresult LibraryKernel::attribute(const Device& device, CUfunction_attribute attribute, int* value) {
  return settingsOn(device).get(info_, library_.program(), attribute, value);
}

CUresult LibraryKernel::setAttribute(const Device& device, CUfunction_attribute attribute, int value) {
  {
    std::lock_guard lock(mutex_);
    FunctionSettings& settings = settings_.try_emplace(device.ordinal(), info_).first->second;
    if (CUresult result = settings.set(info_, attribute, value)) return result;
  }
  for (const std::shared_ptr<Module>& module : library_.instances()) {
    if (&module->context()->device() != &device) continue;
    if (CUresult result = module->function(index_)->settings().set(info_, attribute, value)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult LibraryKernel::function(const ContextPtr& context, std::shared_ptr<Function>* function) {
  std::shared_ptr<Module> module;
  if (CUresult result = library_.instance(context, &module)) return result;
  *function = module->function(index_);
  return CUDA_SUCCESS;
}

Library::Library(std::shared_ptr<const ptx::Program> program) : program_(std::move(program)) {
  for (const ptx::KernelInfo& info : program_->kernels()) {
    kernels_.push_back(std::make_unique<LibraryKernel>(*this, kernels_.size(), info));
  }
}

std::shared_ptr<LibraryKernel> Library::kernel(size_t index) { return {shared_from_this(), kernels_[index].get()}; }

std::shared_ptr<LibraryKernel> Library::kernel(std::string_view name) {
  for (size_t i = 0; i < kernels_.size(); ++i) {
    if (kernels_[i]->info().name == name) return kernel(i);
  }
  return nullptr;
}

CUresult Library::instance(const ContextPtr& context, std::shared_ptr<Module>* module) {
  if (flaw_) return flaw_;
  std::lock_guard lock(mutex_);
  std::shared_ptr<Module>& loaded = instances_[context->id()];
  if (!loaded) {
    // Like a card's driver: new code is put on an idle device.
    CUresult result = context->synchronize();
    if (!result) result = Module::load(context, program_, &loaded);
    if (result) {
      instances_.erase(context->id());
      return result;
    }
    for (size_t i = 0; i < kernels_.size(); ++i) {
      loaded->function(i)->settings() = kernels_[i]->settingsOn(context->device());
    }
  }
  *module = loaded;
  return CUDA_SUCCESS;
}

void Library::dropInstance(uint64_t context) {
  std::shared_ptr<Module> dropped;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  const auto position = instances_.find(context);
  if (position == instances_.end()) return;
  dropped = std::move(position->second);
  instances_.erase(position);
}

std::vector<std::shared_ptr<Module>> Library::instances() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Module>> modules;
  for (const auto& entry : instances_) modules.push_back(entry.second);
  return modules;
}

}  // namespace millpond::softgpu
