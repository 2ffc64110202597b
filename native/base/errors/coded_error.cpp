// SPDX-License-Identifier: Apache-2.0
#include "base/errors/coded_error.h"

namespace millpond {

std::string codedText(const ErrorCode& code, std::string_view what, std::string_view remedy) {
  std::string text(what);
  text.append(". ").append(remedy).append(" [").append(code.name).append("]");
  return text;
}

std::string codedText(const ErrorCode& code, std::string_view what) { return codedText(code, what, code.remedy); }

bool endsWithCode(std::string_view message, const ErrorCode& code) {
  if (!message.ends_with(']')) return false;
  message.remove_suffix(1);
  const std::string_view name = code.name;
  return message.ends_with(name) && message.substr(0, message.size() - name.size()).ends_with('[');
}

}  // namespace millpond
