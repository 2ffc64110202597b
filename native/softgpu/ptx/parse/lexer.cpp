// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/parse/lexer.h"

#include <bit>
#include <charconv>

namespace millpond::softgpu::ptx {
namespace {

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool startsWord(char c) { return isLetter(c) || c == '_' || c == '$' || c == '%'; }
bool continuesWord(char c) { return isLetter(c) || isDigit(c) || c == '_' || c == '$'; }

int digitValue(char c) {
  if (isDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Tokens run() {
    while (out_.error.empty()) {
      bool spaced = skipSpace();
      if (!out_.error.empty()) break;
      Token token;
      token.afterSpace = spaced;
      token.line = line_;
      if (at_ >= text_.size()) {
        out_.list.push_back(token);
        break;
      }
      next(token);
      out_.list.push_back(token);
    }
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void fail(std::string message) {
    if (out_.error.empty()) {
      out_.error = std::move(message);
      out_.errorLine = line_;
    }
  }

  bool skipSpace() {
    size_t start = at_;
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '\n') {
        ++line_;
        ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
        ++at_;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        at_ += 2;
        while (at_ < text_.size() && !(text_[at_] == '*' && peek(1) == '/')) {
          if (text_[at_] == '\n') ++line_;
          ++at_;
        }
        if (at_ >= text_.size()) {
          fail("comment without an end");
          return true;
        }
        at_ += 2;
      } else {
        break;
      }
    }
    return at_ != start;
  }

  void next(Token& token) {
    size_t start = at_;
    char c = text_[at_];
    if (startsWord(c)) {
      ++at_;
      while (continuesWord(peek())) ++at_;
      token.kind = Token::Kind::kWord;
    } else if (c == '.' && (continuesWord(peek(1)) && peek(1) != '$')) {
      ++at_;
      while (continuesWord(peek()) || (peek() == ':' && peek(1) == ':')) at_ += peek() == ':' ? 2 : 1;
      token.kind = Token::Kind::kDot;
    } else if (isDigit(c)) {
      number(token);
    } else if (c == '"') {
      string(token);
      return;
    } else if (std::string_view("{}[]()<>,;:@!+-*/%|&^~=?").find(c) != std::string_view::npos) {
      ++at_;
      token.kind = Token::Kind::kPunct;
    } else {
      fail(std::string("unexpected character ") + (c > ' ' && c < 127
                                                       ? "'" + std::string(1, c) + "'"
                                                       : "code " + std::to_string(static_cast<unsigned char>(c))));
      return;
    }
    token.text = text_.substr(start, at_ - start);
  }

  void string(Token& token) {
    size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
    if (peek() != '"') return fail("string without an end");
    token.kind = Token::Kind::kString;
    token.text = text_.substr(start, at_ - start);
    ++at_;
  }

  void hexPattern(Token& token, size_t digits, Token::Kind kind) {
    at_ += 2;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      int value = digitValue(peek());
      if (value > 15) return fail("a floating-point pattern needs " + std::to_string(digits) + " hexadecimal digits");
      token.bits = token.bits << 4 | static_cast<uint64_t>(value);
    }
    if (continuesWord(peek())) return fail("malformed floating-point pattern");
    token.kind = kind;
  }

  void number(Token& token) {
    if (peek() == '0' && (peek(1) == 'f' || peek(1) == 'F')) return hexPattern(token, 8, Token::Kind::kFloat32);
    if (peek() == '0' && (peek(1) == 'd' || peek(1) == 'D')) return hexPattern(token, 16, Token::Kind::kFloat64);
    size_t start = at_;
    int base = 10;
    if (peek() == '0' && (peek(1) == 'x' || peek(1) == 'X')) {
      base = 16;
      at_ += 2;
    } else if (peek() == '0' && (peek(1) == 'b' || peek(1) == 'B')) {
      base = 2;
      at_ += 2;
    } else if (peek() == '0' && isDigit(peek(1))) {
      base = 8;
      ++at_;
    }
    size_t digits = at_;
    bool overflow = false;
    while (digitValue(peek()) < base) {
      uint64_t value;
      overflow |= __builtin_mul_overflow(token.bits, static_cast<uint64_t>(base), &value);
      overflow |= __builtin_add_overflow(value, static_cast<uint64_t>(digitValue(peek())), &token.bits);
      ++at_;
    }
    bool isDecimal = base == 10 || base == 8;
    if (isDecimal && ((peek() == '.' && isDigit(peek(1))) || peek() == '.' || peek() == 'e' || peek() == 'E')) {
      double value = 0;
      const char* first = text_.data() + start;
      auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
      if (error != std::errc()) return fail("malformed floating-point number");
      at_ = start + static_cast<size_t>(end - first);
      token.kind = Token::Kind::kFloat64;
      token.bits = std::bit_cast<uint64_t>(value);
      return;
    }
    if (at_ == digits) return fail("number without digits");
    if (overflow) return fail("integer does not fit in 64 bits");
    if (peek() == 'U' || peek() == 'u') ++at_;
    if (continuesWord(peek())) return fail("malformed number");
    token.kind = Token::Kind::kInteger;
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  Tokens out_;
};

}  // namespace

Tokens tokenize(std::string_view text) { return Lexer(text).run(); }

}  // namespace millpond::softgpu::ptx
