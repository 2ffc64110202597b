// SPDX-License-Identifier: Apache-2.0
// The value of MILLPOND_LOG: `LEVEL`, `FILE` or `LEVEL,FILE`.
#pragma once

#include <optional>
#include <string_view>

#include "base/log.h"

namespace millpond {

struct LogRequest {
  LogLevel level = LogLevel::Warn;  ///< level of the messages on standard error
  std::string_view traceFile;       ///< file in which every call of the client library is recorded; empty: none
};

/// A file is recognized by the '/' in its name. None if `text` is neither.
std::optional<LogRequest> parseLogRequest(std::string_view text);

}  // namespace millpond
