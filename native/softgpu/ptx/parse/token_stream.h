// SPDX-License-Identifier: Apache-2.0
// A cursor over tokens, shared by the parsers of declarations, initialisers and statements.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "softgpu/ptx/failure.h"
#include "softgpu/ptx/parse/lexer.h"

namespace millpond::softgpu::ptx {

class TokenStream {
 public:
  explicit TokenStream(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool atEnd() const { return peek().kind == Token::Kind::kEnd; }
  uint32_t line() const { return peek().line; }

  bool accept(std::string_view punct) {
    if (!peek().is(punct)) return false;
    next();
    return true;
  }
  bool acceptDot(std::string_view dot) {
    if (!peek().isDot(dot)) return false;
    next();
    return true;
  }
  void expect(std::string_view punct) {
    if (!accept(punct)) unexpected("expected " + quoted(punct));
  }
  std::string_view expectWord(std::string_view what) {
    if (peek().kind != Token::Kind::kWord) unexpected("expected " + std::string(what));
    return next().text;
  }
  uint64_t expectInteger(std::string_view what) {
    if (peek().kind != Token::Kind::kInteger) unexpected("expected " + std::string(what));
    return next().bits;
  }
  [[noreturn]] void unexpected(const std::string& what) const {
    const Token& token = peek();
    syntaxError(token.line, what + (token.kind == Token::Kind::kEnd ? ", found the end of the text"
                                                                    : ", found " + quoted(token.text)));
  }
  void skipLine() {
    uint32_t line = peek().line;
    while (!atEnd() && peek().line == line) next();
  }
  /// Moves from an opening brace past the matching closing one.
  void skipBraces() {
    expect("{");
    for (size_t depth = 1; depth > 0; next()) {
      if (atEnd()) unexpected("expected '}'");
      if (peek().is("{")) ++depth;
      if (peek().is("}")) --depth;
    }
  }

 private:
  const std::vector<Token>& tokens_;
  size_t at_ = 0;
};

}  // namespace millpond::softgpu::ptx
