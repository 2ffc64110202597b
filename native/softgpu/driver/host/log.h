// SPDX-License-Identifier: Apache-2.0
// Messages to standard error, filtered by MILLPOND_LOG.
#pragma once

#include <string>

namespace millpond::softgpu {

enum class LogLevel { error = 1, warn = 2, info = 3, debug = 4 };

/// One line, prefixed with "softgpu: ". The level comes from MILLPOND_LOG (off, error, warn, info, debug,
/// trace), `warn` by default.
void log(LogLevel level, const std::string& message);

}  // namespace millpond::softgpu
