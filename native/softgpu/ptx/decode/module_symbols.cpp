// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/decode/module_symbols.h"

#include <algorithm>
#include <bit>

#include "softgpu/ptx/failure.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint64_t kMaxFormalBytes = 1 << 16;

/// Depends only on the size, so that a place does not depend on how a caller's prototype declares alignments.
uint64_t formalAlignment(uint64_t bytes) { return bytes >= 16 ? 16 : std::bit_ceil(bytes); }

uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29); }

void layOut(const std::vector<FormalNode>& formals, std::vector<CallValue>& out, Signature& signature) {
  for (const FormalNode& formal : formals) {
    uint64_t bytes = std::max<uint64_t>(formal.variable.bytes(), 1);
    uint64_t alignment = formalAlignment(bytes);
    uint64_t offset = (signature.bytes + alignment - 1) / alignment * alignment;
    if (offset + bytes > kMaxFormalBytes) {
      fail(CompileError::Kind::kMemory, formal.variable.line, "the parameters of a function take too much space");
    }
    out.push_back({0, static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    signature.bytes = static_cast<uint32_t>(offset + bytes);
    signature.hash = mix(signature.hash, bytes);
  }
  signature.hash = mix(signature.hash, 0);
}

void collectFunction(const FunctionNode& function, ModuleSymbols& symbols) {
  auto found = symbols.names.find(function.name);
  if (found == symbols.names.end()) {
    Binding symbol;
    symbol.kind = Binding::Kind::kFunction;
    symbol.index = static_cast<uint32_t>(symbols.functions.size());
    symbols.names.emplace(function.name, symbol);
    symbols.functions.push_back(&function);
    symbols.signatures.push_back(signatureOf(function.returns, function.parameters));
    return;
  }
  if (found->second.kind != Binding::Kind::kFunction) {
    syntaxError(function.line, quoted(function.name) + " is declared twice");
  }
  uint32_t index = found->second.index;
  if (signatureOf(function.returns, function.parameters).hash != symbols.signatures[index].hash) {
    syntaxError(function.line, "the function " + quoted(function.name) + " is declared with other parameters before");
  }
  if (!function.hasBody) return;
  if (symbols.functions[index]->hasBody)
    syntaxError(function.line, "the function " + quoted(function.name) + " is defined twice");
  symbols.functions[index] = &function;
}

}  // namespace

Signature signatureOf(const std::vector<FormalNode>& returns, const std::vector<FormalNode>& parameters) {
  Signature signature;
  layOut(returns, signature.returns, signature);
  layOut(parameters, signature.parameters, signature);
  return signature;
}

Binding ModuleSymbols::add(const VariableNode& variable) {
  Binding symbol;
  symbol.space = variable.space;
  symbol.bytes = variable.bytes();
  bool isExtern = variable.linkage == Linkage::kExtern;
  switch (variable.space) {
    case Space::kShared:
      if (isExtern || (variable.isUnsized && variable.bytes() == 0)) {
        symbol.kind = Binding::Kind::kDynamicShared;
        dynamicSharedAlignment = std::max(dynamicSharedAlignment, variable.effectiveAlignment());
      } else {
        symbol.kind = Binding::Kind::kShared;
        symbol.index = static_cast<uint32_t>(shared.size());
        shared.push_back({variable.name, variable.bytes(), variable.effectiveAlignment()});
      }
      return symbol;
    case Space::kGlobal:
    case Space::kConst:
      if (isExtern) {
        symbol.kind = Binding::Kind::kExternVariable;
      } else {
        symbol.kind = Binding::Kind::kGlobal;
        symbol.index = static_cast<uint32_t>(globals.size());
        globals.push_back(variable);
      }
      return symbol;
    default: unsupported(variable.line, "a variable of this state space outside a function");
  }
}

void collectSymbols(const ModuleNode& module, ModuleSymbols& symbols) {
  for (const VariableNode& variable : module.variables) {
    auto found = symbols.names.find(variable.name);
    if (found == symbols.names.end()) {
      Binding symbol = symbols.add(variable);
      symbols.names.emplace(variable.name, symbol);
      continue;
    }
    // A declaration may be repeated, and the definition may follow it.
    if (variable.linkage == Linkage::kExtern) continue;
    if (found->second.kind != Binding::Kind::kExternVariable) {
      syntaxError(variable.line, quoted(variable.name) + " is declared twice");
    }
    found->second = symbols.add(variable);
  }
  for (const FunctionNode& function : module.functions) collectFunction(function, symbols);
  symbols.uses.resize(symbols.functions.size());
  symbols.isAddressTaken.resize(symbols.functions.size());
}

}  // namespace millpond::softgpu::ptx
