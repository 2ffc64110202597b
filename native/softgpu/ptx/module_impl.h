// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/program_impl.h"

namespace millpond::softgpu::ptx {

class ModuleImpl {
 public:
  ModuleImpl(std::shared_ptr<const Program> program, DeviceAllocator& allocator)
      : program_(std::move(program)), allocator_(allocator) {}
  ~ModuleImpl();
  ModuleImpl(const ModuleImpl&) = delete;
  ModuleImpl& operator=(const ModuleImpl&) = delete;

  /// Places and initialises the variables.
  Status prepare();

  const Program& program() const { return *program_; }
  const ProgramImpl& code() const { return program_->impl(); }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const Kernel* kernel(std::string_view name) const;
  std::optional<Symbol> variable(std::string_view name) const;
  std::vector<ReferenceSymbol> references() const;
  /// The program's constants with the addresses of this module's variables.
  const std::byte* constants() const { return constants_; }
  /// Whether an address is in a const variable.
  bool isConst(uint64_t address) const;

 private:
  std::shared_ptr<const Program> program_;
  DeviceAllocator& allocator_;
  std::vector<uint64_t> addresses_;  // of the variables; 0: not placed
  std::vector<Kernel> kernels_;
  std::unordered_map<std::string_view, uint32_t> kernelByName_;
  std::unordered_map<std::string_view, uint32_t> variableByName_;
  std::vector<std::byte> constantMemory_;
  std::byte* constants_ = nullptr;
};

}  // namespace millpond::softgpu::ptx
