// SPDX-License-Identifier: Apache-2.0
// Symbol tables of a module and of the nested scopes of a function.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/parse/ast.h"

namespace millpond::softgpu::ptx {

struct Binding {
  enum class Kind : uint8_t {
    kRegister,        // index: virtual register
    kGlobal,          // index: variable of the program, global or const
    kShared,          // index: shared variable of the module
    kDynamicShared,   // an .extern .shared array: begins where the static ones end
    kFrame,           // offset: place in the local memory of the frame; a .local or .param variable
    kParameter,       // offset: place in the parameter buffer of the kernel
    kFunction,        // index
    kLabel,           // index
    kBranchTargets,   // index into Scopes::branchTargets
    kPrototype,       // index into Scopes::prototypes
    kExternVariable,  // declared but not defined
  };
  Kind kind = Kind::kRegister;
  Space space = Space::kGeneric;  // of variables
  Type type = Type::kB32;         // of registers
  uint32_t index = 0;
  uint32_t offset = 0;
  uint64_t bytes = 0;
};

/// The scopes of one function: 0 is the outermost, its parent is the module.
class Scopes {
 public:
  explicit Scopes(const std::unordered_map<std::string_view, Binding>& module) : module_(module) { open(0); }

  /// A new scope inside `parent`; returns its number.
  uint32_t open(uint32_t parent);
  uint32_t parent(uint32_t scope) const { return scopes_[scope].parent; }

  /// False if the name is taken in that scope.
  bool declare(uint32_t scope, std::string_view name, const Binding& symbol);
  /// Registers name0 to name<count-1>.
  bool declareRange(uint32_t scope, std::string_view prefix, Type type, uint64_t count);

  /// Finds a name as seen from a scope; null if it is not declared. Registers of ranges get a virtual register when
  /// they are first found.
  const Binding* find(uint32_t scope, std::string_view name);

  /// One of 128 bits is two, of which this is the first.
  uint32_t newRegister(Type type);
  const std::vector<uint8_t>& registerWidths() const { return widths_; }

 private:
  struct Range {
    Type type;
    uint64_t count;
  };
  struct Scope {
    uint32_t parent;
    std::unordered_map<std::string_view, Binding> names;
    std::unordered_map<std::string_view, Range> ranges;
  };
  const std::unordered_map<std::string_view, Binding>& module_;
  std::vector<Scope> scopes_;
  std::vector<uint8_t> widths_;
};

/// Bits per lane of a register of this type: 8-bit registers take 16.
constexpr uint8_t registerWidth(Type type) {
  uint32_t bits = bitsOf(type);
  return static_cast<uint8_t>(bits == 8 ? 16 : bits);
}

}  // namespace millpond::softgpu::ptx
