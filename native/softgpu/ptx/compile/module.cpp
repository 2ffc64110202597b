// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "softgpu/ptx/decode/constants.h"
#include "softgpu/ptx/module_impl.h"
#include "softgpu/ptx/types.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr size_t kConstantAlignment = 64;

}  // namespace

ModuleImpl::~ModuleImpl() {
  for (uint64_t address : addresses_) {
    if (address) allocator_.release(address);
  }
}

Status ModuleImpl::prepare() {
  const ProgramImpl& code = program_->impl();
  addresses_.assign(code.variables.size(), 0);
  for (size_t i = 0; i < code.variables.size(); ++i) {
    const VariableInfo& variable = code.variables[i];
    uint64_t bytes = variable.bytes ? variable.bytes : 1;
    bool isWritable = variable.space == VariableSpace::kGlobal;
    addresses_[i] = allocator_.allocate(bytes, variable.alignment, isWritable);
    if (!addresses_[i]) {
      return Error{"no device memory left for the variable '" + variable.name + "' of " + std::to_string(bytes) +
                   " bytes"};
    }
    variableByName_.emplace(variable.name, static_cast<uint32_t>(i));
  }
  for (size_t i = 0; i < code.variables.size(); ++i) {
    std::byte* to = reinterpret_cast<std::byte*>(addresses_[i]);
    const VariableImage& image = code.images[i];
    std::memset(to, 0, code.variables[i].bytes);
    if (!image.bytes.empty()) std::memcpy(to, image.bytes.data(), image.bytes.size());
    for (const Relocation& relocation : image.relocations) {
      uint64_t base = relocation.isFunction ? kFunctionWindow + relocation.target : addresses_[relocation.target];
      uint64_t value = (base + relocation.addend) >> relocation.shift;
      std::memcpy(to + relocation.offset, &value, relocation.bytes);
    }
  }
  constantMemory_.resize(code.constants.size() + kConstantAlignment);
  size_t misaligned = reinterpret_cast<uintptr_t>(constantMemory_.data()) % kConstantAlignment;
  constants_ = constantMemory_.data() + (misaligned ? kConstantAlignment - misaligned : 0);
  if (!code.constants.empty()) std::memcpy(constants_, code.constants.data(), code.constants.size());
  for (const ConstantRelocation& relocation : code.constantRelocations) {
    broadcast(constants_ + relocation.offset, addresses_[relocation.variable] + relocation.addend,
              relocation.bytes * 8);
  }
  for (size_t i = 0; i < code.kernels.size(); ++i) {
    kernels_.emplace_back(this, static_cast<uint32_t>(i));
    kernelByName_.emplace(code.kernels[i].name, static_cast<uint32_t>(i));
  }
  return Done{};
}

const Kernel* ModuleImpl::kernel(std::string_view name) const {
  auto found = kernelByName_.find(name);
  return found == kernelByName_.end() ? nullptr : &kernels_[found->second];
}

std::optional<Symbol> ModuleImpl::variable(std::string_view name) const {
  auto found = variableByName_.find(name);
  if (found == variableByName_.end()) return std::nullopt;
  if (program_->impl().variables[found->second].reference != Reference::kNone) return std::nullopt;
  return Symbol{addresses_[found->second], program_->impl().variables[found->second].bytes};
}

std::vector<ReferenceSymbol> ModuleImpl::references() const {
  std::vector<ReferenceSymbol> out;
  const std::vector<VariableInfo>& variables = program_->impl().variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].reference != Reference::kNone)
      out.push_back({variables[i].name, variables[i].reference, addresses_[i]});
  }
  return out;
}

bool ModuleImpl::isConst(uint64_t address) const {
  const ProgramImpl& code = program_->impl();
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (code.variables[i].space == VariableSpace::kConst && address >= addresses_[i] &&
        address - addresses_[i] < code.variables[i].bytes) {
      return true;
    }
  }
  return false;
}

const KernelInfo& Kernel::info() const { return module_->code().kernels[index_]; }

Result<std::unique_ptr<Module>> Module::create(std::shared_ptr<const Program> program, DeviceAllocator& allocator) {
  auto impl = std::make_unique<ModuleImpl>(std::move(program), allocator);
  Status status = impl->prepare();
  if (!status) return status.error();
  return std::make_unique<Module>(std::move(impl));
}

Module::Module(std::unique_ptr<ModuleImpl> impl) : impl_(std::move(impl)) {}
Module::~Module() = default;
const Program& Module::program() const { return impl_->program(); }
const Kernel* Module::kernel(std::string_view name) const { return impl_->kernel(name); }
std::span<const Kernel> Module::kernels() const { return impl_->kernels(); }
std::optional<Symbol> Module::variable(std::string_view name) const { return impl_->variable(name); }
std::vector<ReferenceSymbol> Module::references() const { return impl_->references(); }

Program::Program(std::unique_ptr<const ProgramImpl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;
std::span<const KernelInfo> Program::kernels() const { return impl_->kernels; }
std::span<const VariableInfo> Program::variables() const { return impl_->variables; }
uint32_t Program::ptxVersion() const { return impl_->ptxVersion; }
uint32_t Program::target() const { return impl_->target; }

}  // namespace millpond::softgpu::ptx
