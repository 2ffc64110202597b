// SPDX-License-Identifier: Apache-2.0
// Messages that end with a code of the table of errors, as users see them: `<what>. <remedy> [<code>]`.
#pragma once

#include <string>
#include <string_view>

#include "base/errors/gen/error_codes.h"
#include "base/result.h"

namespace millpond {

/// `what`: the event and its cause, with current numbers, without a full stop at the end. `remedy`: a sentence, if it
/// is more specific than that of the table.
std::string codedText(const ErrorCode& code, std::string_view what, std::string_view remedy);
std::string codedText(const ErrorCode& code, std::string_view what);

inline Error codedError(const ErrorCode& code, std::string_view what, std::string_view remedy) {
  return {codedText(code, what, remedy)};
}
inline Error codedError(const ErrorCode& code, std::string_view what) { return {codedText(code, what)}; }

/// Whether a message, perhaps of another component, ends with the code.
bool endsWithCode(std::string_view message, const ErrorCode& code);

}  // namespace millpond
