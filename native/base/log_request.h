// SPDX-License-Identifier: Apache-2.0
// What MILLPOND_LOG asks for: `LEVEL`, `FILE` or `LEVEL,FILE`.
#pragma once

#include <optional>
#include <string_view>

#include "base/log.h"

namespace millpond {

struct LogRequest {
  LogLevel level = LogLevel::Warn;  ///< of the messages on standard error
  std::string_view traceFile;       ///< where the client library writes every call; empty: nowhere
};

/// A file differs from a level by the '/' in its name. None when `text` is neither.
std::optional<LogRequest> parseLogRequest(std::string_view text);

}  // namespace millpond
