// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/parse/declarations.h"

#include <bit>

namespace millpond::softgpu::ptx {
namespace {

constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxRegistersPerRange = uint64_t{1} << 24;
constexpr uint64_t kMaxAlignment = 4096;
constexpr int kMaxDepth = 64;

struct Binary {
  std::string_view symbol;
  int precedence;
};

/// The binary operator at the cursor. "<<" and ">>" arrive as two tokens.
constexpr int kProductPrecedence = 6;

std::optional<Binary> binaryOperator(const TokenStream& tokens) {
  static constexpr Binary kOperators[] = {{"|", 1},
                                          {"^", 2},
                                          {"&", 3},
                                          {"<", 4},
                                          {">", 4},
                                          {"+", 5},
                                          {"-", 5},
                                          {"*", kProductPrecedence},
                                          {"/", kProductPrecedence},
                                          {"%", kProductPrecedence}};
  for (const Binary& candidate : kOperators) {
    if (!tokens.peek().is(candidate.symbol)) continue;
    if (candidate.precedence == 4 && !tokens.peek(1).is(candidate.symbol)) return std::nullopt;
    return candidate;
  }
  return std::nullopt;
}

uint64_t constantExpression(TokenStream& tokens, int minimum, int depth);

uint64_t constantUnary(TokenStream& tokens, int depth) {
  if (depth > kMaxDepth) tokens.unexpected("expression nested too deeply");
  if (tokens.accept("-")) return uint64_t{0} - constantUnary(tokens, depth + 1);
  if (tokens.accept("+")) return constantUnary(tokens, depth + 1);
  if (tokens.accept("~")) return ~constantUnary(tokens, depth + 1);
  if (tokens.accept("!")) return constantUnary(tokens, depth + 1) == 0;
  if (tokens.accept("(")) {
    if (tokens.acceptDot(".s64") || tokens.acceptDot(".u64")) {
      tokens.expect(")");
      return constantUnary(tokens, depth + 1);
    }
    uint64_t value = constantExpression(tokens, 1, depth + 1);
    tokens.expect(")");
    return value;
  }
  return tokens.expectInteger("a number");
}

uint64_t constantExpression(TokenStream& tokens, int minimum, int depth) {
  uint64_t left = constantUnary(tokens, depth);
  while (std::optional<Binary> binary = binaryOperator(tokens)) {
    if (binary->precedence < minimum) break;
    tokens.next();
    if (binary->precedence == 4) tokens.next();
    uint64_t right = constantExpression(tokens, binary->precedence + 1, depth + 1);
    switch (binary->symbol[0]) {
      case '|': left |= right; break;
      case '^': left ^= right; break;
      case '&': left &= right; break;
      case '<': left = right > 63 ? 0 : left << right; break;
      case '>': left = right > 63 ? 0 : left >> right; break;
      case '+': left += right; break;
      case '-': left -= right; break;
      case '*': left *= right; break;
      default:
        if (right == 0) tokens.unexpected("division by zero");
        left = binary->symbol == "/" ? left / right : left % right;
    }
  }
  return left;
}

uint64_t floatBits(Type type, uint64_t doubleBits, uint32_t line) {
  double value = std::bit_cast<double>(doubleBits);
  if (type == Type::kF64 || type == Type::kB64) return doubleBits;
  if (type == Type::kF32 || type == Type::kB32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  syntaxError(line, "a decimal floating-point number cannot initialise this type");
}

InitialValue parseInitialValue(TokenStream& tokens, Type type) {
  InitialValue value;
  value.line = tokens.line();
  const Token& token = tokens.peek();
  bool isNegative =
      token.is("-") && (tokens.peek(1).kind == Token::Kind::kFloat32 || tokens.peek(1).kind == Token::Kind::kFloat64);
  if (isNegative) tokens.next();
  if (tokens.peek().kind == Token::Kind::kFloat32) {
    value.bits = tokens.next().bits ^ (isNegative ? uint64_t{1} << 31 : 0);
    if (type == Type::kF64)
      value.bits = std::bit_cast<uint64_t>(double{std::bit_cast<float>(static_cast<uint32_t>(value.bits))});
    return value;
  }
  if (tokens.peek().kind == Token::Kind::kFloat64) {
    value.bits = floatBits(type, tokens.next().bits ^ (isNegative ? uint64_t{1} << 63 : 0), value.line);
    return value;
  }
  size_t closing = 0;
  if (token.kind == Token::Kind::kInteger && tokens.peek(1).is("(")) {
    value.byteMask = tokens.next().bits;
    tokens.next();
    ++closing;
    if (value.byteMask == 0 || (value.byteMask >> (std::countr_zero(value.byteMask) / 8 * 8)) != 0xff) {
      syntaxError(value.line, "an address mask must select one whole byte");
    }
  }
  if (tokens.peek().kind != Token::Kind::kWord) {
    if (closing) tokens.unexpected("expected the name of a variable or function");
    value.bits = constantExpression(tokens, 1, 0);
    if (type == Type::kF64) value.bits = std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(value.bits)));
    if (type == Type::kF32) value.bits = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(value.bits)));
    return value;
  }
  if (tokens.peek().text == "generic" && tokens.peek(1).is("(")) {
    tokens.next();
    tokens.next();
    ++closing;
    value.isGeneric = true;
  }
  value.symbol = tokens.expectWord("the name of a variable or function");
  auto addend = [&] {
    while (tokens.peek().is("+") || tokens.peek().is("-")) {
      bool isMinus = tokens.next().is("-");
      uint64_t amount = constantUnary(tokens, 0);
      value.bits += isMinus ? uint64_t{0} - amount : amount;
    }
  };
  addend();
  for (; closing > 0; --closing) {
    tokens.expect(")");
    addend();
  }
  return value;
}

/// Values of dimension `depth`, from element `index` on; braces may be nested like the dimensions.
void parseInitialList(TokenStream& tokens, VariableNode& variable, const std::vector<uint64_t>& strides, size_t depth,
                      uint64_t index) {
  tokens.expect("{");
  uint64_t stride = depth < strides.size() ? strides[depth] : 1;
  uint64_t limit = variable.isUnsized && depth == 0 ? kMaxVariableBytes
                   : depth == 0                     ? variable.count * variable.vector
                                                    : strides[depth - 1];
  uint64_t used = 0;
  while (!tokens.accept("}")) {
    if (tokens.peek().is("{")) {
      if (depth + 1 > strides.size())
        tokens.unexpected("initialiser nested more deeply than the variable's dimensions");
      if (used + stride > limit) tokens.unexpected("more initial values than elements");
      parseInitialList(tokens, variable, strides, depth + 1, index + used);
      used += stride;
    } else {
      if (used >= limit) tokens.unexpected("more initial values than elements");
      if (variable.initial.size() < index + used) variable.initial.resize(index + used);
      variable.initial.push_back(parseInitialValue(tokens, variable.type));
      ++used;
    }
    if (!tokens.accept(",")) {
      tokens.expect("}");
      break;
    }
  }
}

enum class Storage : uint8_t { kMemory, kRegister };

/// Alignment, attributes, vector and type, in any order, as they precede a name.
void parseTypePart(TokenStream& tokens, VariableNode& variable, Storage storage) {
  bool hasType = false;
  while (tokens.peek().kind == Token::Kind::kDot) {
    const Token& token = tokens.next();
    if (token.text == ".align") {
      variable.alignment = tokens.expectInteger("an alignment");
      if (!std::has_single_bit(variable.alignment) || variable.alignment > kMaxAlignment) {
        syntaxError(token.line, "an alignment must be a power of two of at most " + std::to_string(kMaxAlignment));
      }
    } else if (token.text == ".v2" || token.text == ".v4" || token.text == ".v8") {
      variable.vector = static_cast<uint32_t>(token.text[2] - '0');
    } else if (token.text == ".ptr") {
      // A guarantee about the target of a pointer parameter: its space and alignment follow.
      for (std::string_view space : {".global", ".shared", ".local", ".const"}) tokens.acceptDot(space);
      if (tokens.acceptDot(".align")) tokens.expectInteger("an alignment");
    } else if (token.text == ".attribute") {
      tokens.expect("(");
      while (!tokens.accept(")")) {
        if (tokens.atEnd()) tokens.unexpected("expected ')'");
        if (tokens.next().text == ".managed") variable.isManaged = true;
      }
    } else if (std::optional<Type> type = typeNamed(token.text)) {
      variable.type = *type;
      hasType = true;
    } else if (token.text == ".texref" || token.text == ".surfref") {
      variable.reference = token.text == ".texref" ? Reference::kTexture : Reference::kSurface;
      variable.type = Type::kB64;
      hasType = true;
    } else {
      unsupported(token.line, "the type or directive " + quoted(token.text) + " of a variable");
    }
  }
  if (!hasType) tokens.unexpected("expected a type");
  if (variable.reference != Reference::kNone && variable.space != Space::kGlobal)
    unsupported(variable.line, "a texture or surface reference outside the global state space");
  if (variable.type == Type::kPred && storage == Storage::kMemory) {
    syntaxError(variable.line, "a predicate cannot be a variable in memory");
  }
}

void parseDimensions(TokenStream& tokens, VariableNode& variable, std::vector<uint64_t>& strides) {
  std::vector<uint64_t> dimensions;
  while (tokens.accept("[")) {
    if (tokens.accept("]")) {
      if (!dimensions.empty()) tokens.unexpected("only the first dimension may be empty");
      variable.isUnsized = true;
      dimensions.push_back(0);
      continue;
    }
    dimensions.push_back(constantExpression(tokens, 1, 0));
    tokens.expect("]");
  }
  uint64_t inner = 1;
  strides.assign(dimensions.size(), 1);
  for (size_t i = dimensions.size(); i > 0; --i) {
    strides[i - 1] = inner * variable.vector;
    if (__builtin_mul_overflow(inner, dimensions[i - 1], &inner) || inner > kMaxVariableBytes) {
      syntaxError(variable.line, "variable " + quoted(variable.name) + " is too large");
    }
  }
  variable.count = inner;
  if (variable.vector > 1) strides.push_back(1);
}

}  // namespace

uint64_t parseConstant(TokenStream& tokens) { return constantExpression(tokens, 1, 0); }
uint64_t parseTerm(TokenStream& tokens) { return constantExpression(tokens, kProductPrecedence, 0); }

std::optional<Space> variableSpace(const Token& token) {
  if (token.isDot(".global")) return Space::kGlobal;
  if (token.isDot(".shared")) return Space::kShared;
  if (token.isDot(".local")) return Space::kLocal;
  if (token.isDot(".const")) return Space::kConst;
  if (token.isDot(".param")) return Space::kParam;
  return std::nullopt;
}

void parseVariables(TokenStream& tokens, Space space, Linkage linkage, std::vector<VariableNode>& out) {
  VariableNode common;
  common.line = tokens.line();
  common.space = space;
  common.linkage = linkage;
  parseTypePart(tokens, common, Storage::kMemory);
  do {
    VariableNode variable = common;
    variable.line = tokens.line();
    variable.name = tokens.expectWord("the name of a variable");
    std::vector<uint64_t> strides;
    parseDimensions(tokens, variable, strides);
    if (variable.reference != Reference::kNone) {
      // A kernel names one variable by its address: each has a single texture.
      if (!strides.empty()) unsupported(variable.line, "an array of texture or surface references");
      if (tokens.peek().is("=")) unsupported(variable.line, "a texture or surface reference with an initial value");
    }
    if (tokens.accept("=")) {
      if (space != Space::kGlobal && space != Space::kConst) {
        syntaxError(variable.line, "only global and const variables may have an initial value");
      }
      if (tokens.peek().is("{")) {
        parseInitialList(tokens, variable, strides, 0, 0);
      } else {
        variable.initial.push_back(parseInitialValue(tokens, variable.type));
      }
      if (variable.isUnsized) {
        uint64_t inner = strides.empty() ? 1 : strides[0];
        variable.count = (variable.initial.size() + inner - 1) / inner * (inner / variable.vector);
        variable.isUnsized = false;
      }
    }
    if (variable.bytes() > kMaxVariableBytes)
      syntaxError(variable.line, "variable " + quoted(variable.name) + " is too large");
    out.push_back(std::move(variable));
  } while (tokens.accept(","));
  tokens.expect(";");
}

void parseRegisters(TokenStream& tokens, std::vector<RegisterNode>& out) {
  RegisterNode common;
  if (tokens.peek().isDot(".v2") || tokens.peek().isDot(".v4")) unsupported(tokens.line(), "a register of vector type");
  const Token& token = tokens.next();
  std::optional<Type> type = token.kind == Token::Kind::kDot ? typeNamed(token.text) : std::nullopt;
  if (token.isDot(".b128")) type = Type::kB128;
  if (!type) unsupported(token.line, "a register of type " + quoted(token.text));
  common.type = *type;
  do {
    RegisterNode reg = common;
    reg.line = tokens.line();
    reg.name = tokens.expectWord("the name of a register");
    if (tokens.accept("<")) {
      reg.isRange = true;
      reg.count = tokens.expectInteger("a number of registers");
      if (reg.count > kMaxRegistersPerRange) syntaxError(reg.line, "too many registers in " + quoted(reg.name));
      tokens.expect(">");
    }
    out.push_back(reg);
  } while (tokens.accept(","));
  tokens.expect(";");
}

std::vector<FormalNode> parseFormals(TokenStream& tokens) {
  std::vector<FormalNode> out;
  tokens.expect("(");
  if (tokens.accept(")")) return out;
  do {
    FormalNode formal;
    formal.variable.line = tokens.line();
    formal.variable.space = Space::kParam;
    formal.isRegister = tokens.acceptDot(".reg");
    if (!formal.isRegister && !tokens.acceptDot(".param")) tokens.unexpected("expected '.param' or '.reg'");
    parseTypePart(tokens, formal.variable, formal.isRegister ? Storage::kRegister : Storage::kMemory);
    formal.variable.name = tokens.expectWord("the name of a parameter");
    std::vector<uint64_t> strides;
    parseDimensions(tokens, formal.variable, strides);
    if (formal.variable.isUnsized) unsupported(formal.variable.line, "a parameter of variable length");
    out.push_back(std::move(formal));
  } while (tokens.accept(","));
  tokens.expect(")");
  return out;
}

}  // namespace millpond::softgpu::ptx
