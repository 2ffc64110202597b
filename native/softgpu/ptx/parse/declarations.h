// SPDX-License-Identifier: Apache-2.0
// Parsing of variables, registers and formal parameters.
#pragma once

#include <optional>

#include "softgpu/ptx/parse/ast.h"
#include "softgpu/ptx/parse/token_stream.h"

namespace millpond::softgpu::ptx {

/// The state space of a directive such as ".global"; none if it names none.
std::optional<Space> variableSpace(const Token& token);

/// After the state space: attributes, type, and one or more names with their initialisers, up to the ';'.
void parseVariables(TokenStream& tokens, Space space, Linkage linkage, std::vector<VariableNode>& out);

/// After ".reg": type and names, to the ';'.
void parseRegisters(TokenStream& tokens, std::vector<RegisterNode>& out);

/// A list of formal parameters in parentheses.
std::vector<FormalNode> parseFormals(TokenStream& tokens);

/// A constant integer expression.
uint64_t parseConstant(TokenStream& tokens);
/// A constant expression without the additive operators.
uint64_t parseTerm(TokenStream& tokens);

}  // namespace millpond::softgpu::ptx
