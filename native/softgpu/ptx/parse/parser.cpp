// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/parse/parser.h"

#include <charconv>

#include "softgpu/ptx/parse/declarations.h"

namespace millpond::softgpu::ptx {
namespace {

/// The latest version of PTX as of CUDA 13.
constexpr uint32_t kLastMajorVersion = 9;
constexpr uint32_t kLastTarget = 129;

constexpr int kMaxOperandDepth = 8;

class Parser {
 public:
  explicit Parser(const std::vector<Token>& tokens) : tokens_(tokens) {}

  ModuleNode run() {
    while (!tokens_.atEnd()) topLevel();
    if (module_.version == 0) notPtx(1);
    if (module_.target == 0) syntaxError(1, "'.target' is missing");
    return std::move(module_);
  }

 private:
  /// .file index "name" and .loc index line column; anything that does not look like one is ignored.
  void sourcePlace() {
    const uint32_t line = tokens_.line();
    const bool isFile = tokens_.peek().isDot(".file");
    const Token& index = tokens_.peek(1);
    const Token& what = tokens_.peek(2);
    if (index.kind == Token::Kind::kInteger && index.line == line && what.line == line) {
      if (isFile && what.kind == Token::Kind::kString)
        module_.files.push_back({line, index.bits, what.text});
      else if (!isFile && what.kind == Token::Kind::kInteger)
        module_.locations.push_back({line, index.bits, static_cast<uint32_t>(what.bits)});
    }
    tokens_.skipLine();
  }

  [[noreturn]] static void notPtx(uint32_t line) {
    fail(CompileError::Kind::kNotPtx, line, "the text does not begin with '.version': this is not PTX");
  }

  void topLevel() {
    const Token& token = tokens_.peek();
    if (module_.version == 0 && !token.isDot(".version")) notPtx(token.line);
    if (tokens_.acceptDot(".version")) return version();
    if (tokens_.acceptDot(".target")) return target();
    if (tokens_.acceptDot(".address_size")) {
      if (tokens_.expectInteger("32 or 64") != 64) unsupported(token.line, "an address size other than 64 bits");
      return;
    }
    if (token.isDot(".file") || token.isDot(".loc")) return sourcePlace();
    if (token.is("@") && tokens_.peek(1).is("@")) return tokens_.skipLine();
    if (tokens_.acceptDot(".section")) {
      while (!tokens_.atEnd() && !tokens_.peek().is("{")) tokens_.next();
      return tokens_.skipBraces();
    }
    if (tokens_.acceptDot(".pragma")) return pragma();
    if (tokens_.accept(";")) return;
    Linkage linkage = Linkage::kInternal;
    if (tokens_.acceptDot(".extern"))
      linkage = Linkage::kExtern;
    else if (tokens_.acceptDot(".visible"))
      linkage = Linkage::kVisible;
    else if (tokens_.acceptDot(".weak"))
      linkage = Linkage::kWeak;
    else if (tokens_.acceptDot(".common"))
      linkage = Linkage::kCommon;
    if (tokens_.peek().isDot(".func") || tokens_.peek().isDot(".entry")) return function(linkage);
    if (std::optional<Space> space = variableSpace(tokens_.peek())) {
      tokens_.next();
      return parseVariables(tokens_, *space, linkage, module_.variables);
    }
    if (tokens_.peek().kind == Token::Kind::kDot) {
      unsupported(tokens_.line(), "the directive " + quoted(tokens_.peek().text));
    }
    tokens_.unexpected("expected a directive");
  }

  void version() {
    const Token& token = tokens_.next();
    size_t dot = token.text.find('.');
    uint32_t major = 0;
    uint32_t minor = 0;
    if (token.kind == Token::Kind::kFloat64 && dot != std::string_view::npos) {
      const char* end = token.text.data() + token.text.size();
      std::from_chars(token.text.data(), token.text.data() + dot, major);
      std::from_chars(token.text.data() + dot + 1, end, minor);
    }
    if (major == 0 || major > 99 || minor > 9) syntaxError(token.line, "malformed '.version'");
    if (major > kLastMajorVersion)
      fail(CompileError::Kind::kVersion, token.line, "PTX of version " + quoted(token.text) + " is not known yet");
    module_.version = major * 10 + minor;
  }

  void target() {
    do {
      std::string_view name = tokens_.expectWord("a target");
      if (name.substr(0, 3) == "sm_") {
        uint32_t number = 0;
        auto [end, error] = std::from_chars(name.data() + 3, name.data() + name.size(), number);
        std::string_view suffix(end, static_cast<size_t>(name.data() + name.size() - end));
        if (error != std::errc() || number < 10 || number > kLastTarget)
          syntaxError(tokens_.line(), "malformed target " + quoted(name));
        // Code for one architecture ("sm_90a") or family ("sm_100f") may use features that no other has.
        if (!suffix.empty()) unsupported(tokens_.line(), "the target " + quoted(name));
        module_.target = number;
        module_.targetName = name;
      } else if (name != "debug" && name != "texmode_unified" && name != "texmode_independent" &&
                 name != "map_f64_to_f32") {
        unsupported(tokens_.line(), "the target " + quoted(name));
      }
    } while (tokens_.accept(","));
  }

  void pragma() {
    do {
      if (tokens_.peek().kind != Token::Kind::kString) tokens_.unexpected("expected a string");
      tokens_.next();
    } while (tokens_.accept(","));
    tokens_.expect(";");
  }

  void function(Linkage linkage) {
    FunctionNode out;
    out.line = tokens_.line();
    out.linkage = linkage;
    out.isEntry = tokens_.next().text == ".entry";
    if (tokens_.acceptDot(".attribute")) skipParentheses();
    if (!out.isEntry && tokens_.peek().is("(")) out.returns = parseFormals(tokens_);
    out.name = tokens_.expectWord("the name of a function");
    if (tokens_.peek().is("(")) out.parameters = parseFormals(tokens_);
    for (const FormalNode& formal : out.parameters)
      if (out.isEntry && formal.isRegister) syntaxError(formal.variable.line, "a kernel's parameters are in .param");
    performanceDirectives(out);
    if (tokens_.accept("{")) {
      out.hasBody = true;
      body(out);
    } else {
      tokens_.accept(";");
    }
    module_.functions.push_back(std::move(out));
  }

  void skipParentheses() {
    tokens_.expect("(");
    for (size_t depth = 1; depth > 0; tokens_.next()) {
      if (tokens_.atEnd()) tokens_.unexpected("expected ')'");
      if (tokens_.peek().is("(")) ++depth;
      if (tokens_.peek().is(")")) --depth;
    }
  }

  void threadCounts(uint32_t (&out)[3]) {
    size_t i = 0;
    for (uint32_t& extent : out) extent = 1;
    do {
      uint64_t value = tokens_.expectInteger("a number of threads");
      if (i == 3 || value == 0 || value > UINT32_MAX) tokens_.unexpected("malformed number of threads");
      out[i++] = static_cast<uint32_t>(value);
    } while (tokens_.accept(","));
  }

  void performanceDirectives(FunctionNode& out) {
    while (tokens_.peek().kind == Token::Kind::kDot) {
      const Token& token = tokens_.peek();
      if (token.isDot(".maxntid")) {
        tokens_.next();
        threadCounts(out.maxThreads);
      } else if (token.isDot(".reqntid")) {
        tokens_.next();
        threadCounts(out.requiredThreads);
      } else if (token.isDot(".minnctapersm") || token.isDot(".maxnctapersm") || token.isDot(".maxnreg")) {
        tokens_.next();
        tokens_.expectInteger("a number");
      } else if (token.isDot(".noreturn")) {
        tokens_.next();
      } else if (token.isDot(".pragma")) {
        tokens_.next();
        pragma();
      } else {
        // A function without body may be followed by the next declaration instead of ';'.
        if (!out.isEntry || !isClusterDirective(token.text)) return;
        unsupported(token.line, "the cluster directive " + quoted(token.text));
      }
    }
  }

  static bool isClusterDirective(std::string_view text) {
    return text == ".explicitcluster" || text == ".reqnctapercluster" || text == ".maxclusterrank" ||
           text == ".blocksareclusters";
  }

  void body(FunctionNode& out) {
    size_t depth = 1;
    while (true) {
      if (tokens_.atEnd()) tokens_.unexpected("expected '}'");
      const Token& token = tokens_.peek();
      if (tokens_.accept("{")) {
        if (++depth > 4096) tokens_.unexpected("scopes nested too deeply");
        out.body.emplace_back(ScopeNode{true});
      } else if (tokens_.accept("}")) {
        if (--depth == 0) return;
        out.body.emplace_back(ScopeNode{false});
      } else if (tokens_.accept(";")) {
        continue;
      } else if (token.is("@") && tokens_.peek(1).is("@")) {
        tokens_.skipLine();
      } else if (token.kind == Token::Kind::kDot) {
        directive(out);
      } else if (token.kind == Token::Kind::kWord && tokens_.peek(1).is(":")) {
        label(out);
      } else {
        out.body.emplace_back(instruction());
      }
    }
  }

  void directive(FunctionNode& out) {
    const Token& token = tokens_.peek();
    if (token.isDot(".loc") || token.isDot(".file")) return sourcePlace();
    if (tokens_.acceptDot(".reg")) {
      std::vector<RegisterNode> registers;
      parseRegisters(tokens_, registers);
      for (RegisterNode& reg : registers) out.body.emplace_back(reg);
      return;
    }
    if (tokens_.acceptDot(".pragma")) return pragma();
    Linkage linkage = tokens_.acceptDot(".extern") ? Linkage::kExtern : Linkage::kInternal;
    if (std::optional<Space> space = variableSpace(tokens_.peek())) {
      tokens_.next();
      std::vector<VariableNode> variables;
      parseVariables(tokens_, *space, linkage, variables);
      for (VariableNode& variable : variables) out.body.emplace_back(std::move(variable));
      return;
    }
    unsupported(token.line, "the directive " + quoted(token.text));
  }

  void label(FunctionNode& out) {
    uint32_t line = tokens_.line();
    std::string_view name = tokens_.next().text;
    tokens_.expect(":");
    if (tokens_.acceptDot(".branchtargets")) {
      BranchTargetsNode targets{name, {}};
      do targets.labels.push_back(tokens_.expectWord("a label"));
      while (tokens_.accept(","));
      tokens_.expect(";");
      out.body.emplace_back(std::move(targets));
    } else if (tokens_.acceptDot(".callprototype")) {
      PrototypeNode prototype;
      prototype.line = line;
      prototype.name = name;
      if (tokens_.peek().is("(")) prototype.returns = parseFormals(tokens_);
      tokens_.expectWord("'_'");
      if (tokens_.peek().is("(")) prototype.parameters = parseFormals(tokens_);
      while (tokens_.acceptDot(".noreturn")) continue;
      tokens_.expect(";");
      out.body.emplace_back(std::move(prototype));
    } else if (tokens_.acceptDot(".calltargets")) {
      CallTargetsNode targets{line, name, {}};
      do targets.functions.push_back(tokens_.expectWord("a function"));
      while (tokens_.accept(","));
      tokens_.expect(";");
      out.body.emplace_back(std::move(targets));
    } else {
      out.body.emplace_back(LabelNode{line, name});
    }
  }

  InstructionNode instruction() {
    InstructionNode out;
    out.line = tokens_.line();
    if (tokens_.accept("@")) {
      out.hasGuard = true;
      out.isGuardNegated = tokens_.accept("!");
      out.guard = tokens_.expectWord("a predicate");
    }
    out.line = tokens_.line();
    out.opcode = tokens_.expectWord("an instruction");
    isCall_ = out.opcode == "call";
    while (tokens_.peek().kind == Token::Kind::kDot && !tokens_.peek().afterSpace)
      out.modifiers.push_back(tokens_.next().text);
    if (tokens_.accept(";")) return out;
    do out.operands.push_back(operand(0));
    while (tokens_.accept(","));
    tokens_.expect(";");
    return out;
  }

  Operand operand(int depth) {
    if (depth > kMaxOperandDepth) tokens_.unexpected("operand nested too deeply");
    Operand out;
    out.line = tokens_.line();
    if (tokens_.accept("[")) {
      address(out, depth);
      return out;
    }
    // In instructions other than calls, parentheses enclose a constant expression.
    if (tokens_.peek().is("{") || (isCall_ && tokens_.peek().is("("))) {
      bool isVector = tokens_.next().is("{");
      std::string_view closing = isVector ? "}" : ")";
      out.kind = isVector ? Operand::Kind::kVector : Operand::Kind::kList;
      if (tokens_.accept(closing)) return out;
      do out.items.push_back(operand(depth + 1));
      while (tokens_.accept(","));
      tokens_.expect(closing);
      return out;
    }
    if (tokens_.accept("!")) {
      out = operand(depth + 1);
      if (out.kind != Operand::Kind::kName) tokens_.unexpected("'!' needs a predicate");
      out.isNegated = !out.isNegated;
      return out;
    }
    if (tokens_.peek().kind == Token::Kind::kWord) return named(out);
    if (tokens_.peek().is("-") && tokens_.peek(1).kind == Token::Kind::kWord) {
      tokens_.next();
      out.kind = Operand::Kind::kMinus;
      out.items.push_back(name());
      return out;
    }
    return number(out);
  }

  Operand named(Operand& out) {
    out = name();
    if (!tokens_.accept("|")) return std::move(out);
    Operand pair;
    pair.kind = Operand::Kind::kPair;
    pair.line = out.line;
    pair.items.push_back(std::move(out));
    pair.items.push_back(name());
    return pair;
  }

  /// A name, its dotted suffix (%tid.x), and an added offset.
  Operand name() {
    Operand out;
    out.line = tokens_.line();
    const Token& first = tokens_.peek();
    std::string_view text = tokens_.expectWord("a name");
    if (text == "_") return out;
    out.kind = Operand::Kind::kName;
    const Token& suffix = tokens_.peek();
    if (suffix.kind == Token::Kind::kDot && !suffix.afterSpace) {
      text = std::string_view(first.text.data(), first.text.size() + suffix.text.size());
      tokens_.next();
    }
    out.name = text;
    out.offset = offset();
    return out;
  }

  int64_t offset() {
    uint64_t sum = 0;
    while (tokens_.peek().is("+") || tokens_.peek().is("-")) {
      bool isMinus = tokens_.next().is("-");
      const uint64_t amount = parseTerm(tokens_);
      sum += isMinus ? uint64_t{0} - amount : amount;
    }
    return static_cast<int64_t>(sum);
  }

  void address(Operand& out, int depth) {
    out.kind = Operand::Kind::kAddress;
    Operand base = operand(depth + 1);
    out.offset = base.offset;
    base.offset = 0;
    out.items.push_back(std::move(base));
    while (tokens_.accept(",")) out.items.push_back(operand(depth + 1));
    tokens_.expect("]");
  }

  Operand number(Operand& out) {
    bool isNegative = tokens_.peek().is("-") &&
                      (tokens_.peek(1).kind == Token::Kind::kFloat32 || tokens_.peek(1).kind == Token::Kind::kFloat64);
    if (isNegative) tokens_.next();
    if (tokens_.peek().kind == Token::Kind::kFloat32) {
      out.kind = Operand::Kind::kFloat32;
      out.bits = tokens_.next().bits ^ (isNegative ? uint64_t{1} << 31 : 0);
    } else if (tokens_.peek().kind == Token::Kind::kFloat64) {
      out.kind = Operand::Kind::kFloat64;
      out.bits = tokens_.next().bits ^ (isNegative ? uint64_t{1} << 63 : 0);
    } else {
      out.kind = Operand::Kind::kInteger;
      out.bits = parseConstant(tokens_);
    }
    return std::move(out);
  }

  TokenStream tokens_;
  ModuleNode module_;
  bool isCall_ = false;  // the instruction whose operands are read
};

}  // namespace

ModuleNode parse(std::string_view text) {
  Tokens tokens = tokenize(text);
  if (!tokens.error.empty()) syntaxError(tokens.errorLine, tokens.error);
  return Parser(tokens.list).run();
}

}  // namespace millpond::softgpu::ptx
