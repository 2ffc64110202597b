// SPDX-License-Identifier: Apache-2.0
// How the stages of compile() give up. Thrown and caught inside compile() only.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "softgpu/ptx/engine.h"

namespace millpond::softgpu::ptx {

struct Failure {
  CompileError error;
};

[[noreturn]] inline void fail(CompileError::Kind kind, uint32_t line, std::string message) {
  if (line) message = "PTX line " + std::to_string(line) + ": " + message;
  throw Failure{{kind, line, std::move(message)}};
}
[[noreturn]] inline void syntaxError(uint32_t line, std::string message) {
  fail(CompileError::Kind::kSyntax, line, std::move(message));
}
[[noreturn]] inline void unsupported(uint32_t line, std::string message) {
  fail(CompileError::Kind::kUnsupported, line, std::move(message) + " is not supported by the software GPU");
}
/// 'text' for messages; long names are truncated.
inline std::string quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, 120)) + (text.size() > 120 ? "…'" : "'");
}

}  // namespace millpond::softgpu::ptx
