// SPDX-License-Identifier: Apache-2.0
// PTX text to tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millpond::softgpu::ptx {

struct Token {
  enum class Kind : uint8_t {
    kWord,     // identifier, opcode, register: add, %r1, $L__BB0_1, _
    kDot,      // ".global", ".L2::128B"; `text` includes the dot
    kInteger,  // `bits` is the value
    kFloat32,  // 0f…: `bits` is the pattern
    kFloat64,  // 0d… or decimal: `bits` is the pattern of the double
    kString,   // `text` without the quotes, escapes untouched
    kPunct,    // `text` is one character
    kEnd,
  };
  Kind kind = Kind::kEnd;
  bool afterSpace = false;  // white space or a comment came before
  uint32_t line = 0;
  std::string_view text;
  uint64_t bits = 0;

  bool is(std::string_view punct) const { return kind == Kind::kPunct && text == punct; }
  bool isDot(std::string_view dot) const { return kind == Kind::kDot && text == dot; }
};

struct Tokens {
  std::vector<Token> list;  // ends with kEnd
  uint32_t errorLine = 0;
  std::string error;  // empty: none
};

/// The tokens refer to `text`, which must outlive them.
Tokens tokenize(std::string_view text);

}  // namespace millpond::softgpu::ptx
