// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a PTX module. Names refer to the module's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "softgpu/ptx/texture.h"
#include "softgpu/ptx/types.h"

namespace millpond::softgpu::ptx {

struct Operand {
  enum class Kind : uint8_t {
    kName,     // register, symbol, label, special register; `name` with its dotted suffix
    kInteger,  // `bits`
    kFloat32,  // `bits`: pattern
    kFloat64,  // `bits`: pattern
    kAddress,  // [items[0] + offset]
    kVector,   // {items}
    kList,     // (items)
    kPair,     // items[0] | items[1]
    kMinus,    // -items[0], of a register
    kSink,     // _
  };
  Kind kind = Kind::kSink;
  bool isNegated = false;  // !name
  uint32_t line = 0;
  std::string_view name;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::vector<Operand> items;
};

struct InstructionNode {
  uint32_t line = 0;
  bool hasGuard = false;
  bool isGuardNegated = false;
  std::string_view guard;
  std::string_view opcode;                  // "ld"
  std::vector<std::string_view> modifiers;  // ".global", ".f32"
  std::vector<Operand> operands;

  std::string fullName() const {
    std::string text(opcode);
    for (std::string_view modifier : modifiers) text += modifier;
    return text;
  }
};

/// One scalar of an initialised variable: a number, or an address with the selected byte of it.
struct InitialValue {
  uint64_t bits = 0;        // of the number, or what is added to the address
  std::string_view symbol;  // empty: a number
  uint64_t byteMask = 0;    // 0xFF00(symbol): only that byte, shifted down
  bool isGeneric = false;   // generic(symbol)
  uint32_t line = 0;
};

enum class Linkage : uint8_t { kInternal, kExtern, kVisible, kWeak, kCommon };

struct VariableNode {
  uint32_t line = 0;
  Linkage linkage = Linkage::kInternal;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  uint32_t vector = 1;     // elements of .v2, .v4
  uint64_t alignment = 0;  // bytes; 0: natural
  std::string_view name;
  uint64_t count = 1;                      // elements, all dimensions multiplied
  Reference reference = Reference::kNone;  // .texref, .surfref
  bool isManaged = false;                  // .attribute(.managed)
  bool isUnsized = false;                  // declared as name[]: 0 elements, or as many as its initialiser has
  std::vector<InitialValue> initial;

  uint64_t elementBytes() const { return uint64_t{bytesOf(type)} * vector; }
  uint64_t bytes() const { return elementBytes() * count; }
  uint64_t effectiveAlignment() const { return alignment ? alignment : elementBytes(); }
};

struct RegisterNode {
  uint32_t line = 0;
  Type type = Type::kB32;
  std::string_view name;
  bool isRange = false;  // name<count>
  uint64_t count = 1;
};

/// A parameter or return value of a function.
struct FormalNode {
  bool isRegister = false;  // declared in .reg instead of .param
  VariableNode variable;
};

struct LabelNode {
  uint32_t line = 0;
  std::string_view name;
};

/// A brace that opens or closes a scope of names.
struct ScopeNode {
  bool isOpening = false;
};

/// name: .branchtargets label, …;
struct BranchTargetsNode {
  std::string_view name;
  std::vector<std::string_view> labels;
};

/// name: .callprototype (returns) _ (parameters);
struct PrototypeNode {
  uint32_t line = 0;
  std::string_view name;
  std::vector<FormalNode> returns;
  std::vector<FormalNode> parameters;
};

/// name: .calltargets function, …;
struct CallTargetsNode {
  uint32_t line = 0;
  std::string_view name;
  std::vector<std::string_view> functions;
};

using Statement = std::variant<InstructionNode, LabelNode, RegisterNode, VariableNode, ScopeNode, BranchTargetsNode,
                               PrototypeNode, CallTargetsNode>;

struct FunctionNode {
  uint32_t line = 0;
  Linkage linkage = Linkage::kInternal;
  bool isEntry = false;
  bool hasBody = false;
  std::string_view name;
  std::vector<FormalNode> returns;
  std::vector<FormalNode> parameters;
  uint32_t maxThreads[3] = {0, 0, 0};       // .maxntid; 0: not given
  uint32_t requiredThreads[3] = {0, 0, 0};  // .reqntid
  std::vector<Statement> body;
};

/// .file, and .loc before the instructions to which it refers.
struct FileNode {
  uint32_t line = 0;
  uint64_t index = 0;
  std::string_view name;
};
struct LocationNode {
  uint32_t line = 0;
  uint64_t file = 0;
  uint32_t fileLine = 0;
};

struct ModuleNode {
  uint32_t version = 0;  // 10 * major + minor
  uint32_t target = 0;
  std::string_view targetName;
  std::vector<VariableNode> variables;
  std::vector<FunctionNode> functions;
  std::vector<FileNode> files;
  std::vector<LocationNode> locations;  // by line
};

}  // namespace millpond::softgpu::ptx
