// SPDX-License-Identifier: Apache-2.0
// Everything that the functions of a module share while they are decoded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/decode/constants.h"
#include "softgpu/ptx/decode/symbols.h"
#include "softgpu/ptx/inspection.h"
#include "softgpu/ptx/parse/ast.h"

namespace millpond::softgpu::ptx {

struct SharedVariable {
  std::string_view name;
  uint64_t bytes = 0;
  uint64_t alignment = 1;
};

/// Positions of return values and parameters of a called function in its frame.
struct Signature {
  std::vector<CallValue> returns;  // calleeOffset and bytes
  std::vector<CallValue> parameters;
  uint32_t bytes = 0;  // of local memory for all of them
  uint64_t hash = 0;
};
Signature signatureOf(const std::vector<FormalNode>& returns, const std::vector<FormalNode>& parameters);

/// The variables that a function uses, for the layout of shared memory and stacks.
struct FunctionUse {
  std::vector<uint32_t> sharedVariables;
  std::vector<uint32_t> callees;
  bool usesDynamicShared = false;
  bool callsIndirectly = false;
  bool usesHeap = false;
  bool prints = false;
  bool allocatesStack = false;  // an amount that is known only when it runs
};

struct ModuleSymbols {
  Checks checks;
  std::unordered_map<std::string_view, Binding> names;
  std::vector<VariableNode> globals;  // global and const, as the program's variables are numbered
  std::vector<SharedVariable> shared;
  uint64_t dynamicSharedAlignment = 16;
  std::vector<const FunctionNode*> functions;  // by index; the definition if there is one
  std::vector<Signature> signatures;
  std::vector<FunctionUse> uses;
  std::vector<bool> isAddressTaken;  // functions whose address is taken, so that indirect calls may reach them
  Constants constants;

  /// Adds a variable that is declared at module level or inside a function.
  Binding add(const VariableNode& variable);
};

/// Symbols of all declarations of the module.
void collectSymbols(const ModuleNode& module, ModuleSymbols& symbols);

}  // namespace millpond::softgpu::ptx
