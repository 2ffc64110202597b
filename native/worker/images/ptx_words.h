// SPDX-License-Identifier: Apache-2.0
// PTX, word by word.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>

namespace millpond::worker {

/// 0: not a numeric type.
inline size_t bytesOfType(std::string_view type) {
  if (type.size() < 3 || type[0] != '.' || std::string_view("busf").find(type[1]) == std::string_view::npos) return 0;
  unsigned bits = 0;
  const auto [end, problem] = std::from_chars(type.data() + 2, type.data() + type.size(), bits);
  return problem == std::errc() && end == type.data() + type.size() ? bits / 8 : 0;
}

/// Words and punctuation of the text, without comments.
class PtxWords {
 public:
  explicit PtxWords(std::string_view text) : text_(text) {}

  std::string_view next() {
    skip();
    if (text_.empty()) return {};
    if (text_[0] == '"') return take(std::min(text_.find('"', 1), text_.size() - 1) + 1);
    const auto isOfWord = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
             c == '$' || c == '%' || c == ':';
    };
    size_t n = 0;
    while (n < text_.size() && isOfWord(text_[n])) ++n;
    return take(n ? n : 1);
  }

 private:
  std::string_view take(size_t n) {
    const std::string_view taken = text_.substr(0, n);
    text_.remove_prefix(n);
    return taken;
  }
  void skip() {
    for (;;) {
      const size_t at = text_.find_first_not_of(" \t\r\n");
      text_.remove_prefix(at == std::string_view::npos ? text_.size() : at);
      std::string_view end;
      if (text_.starts_with("//"))
        end = "\n";
      else if (text_.starts_with("/*"))
        end = "*/";
      else
        return;
      const size_t stop = text_.find(end, 2);
      text_.remove_prefix(stop == std::string_view::npos ? text_.size() : stop + end.size());
    }
  }

  std::string_view text_;
};

}  // namespace millpond::worker
