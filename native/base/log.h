// SPDX-License-Identifier: Apache-2.0
// Diagnostics on standard error: `millpond: level: message`, each line by one write() so that lines of
// several threads and processes never mix. Standard output is never touched.
#pragma once

#include <atomic>
#include <cstdarg>
#include <optional>
#include <string_view>

namespace millpond {

enum class LogLevel { Off, Error, Warn, Info, Debug, Trace };

/// The level named by `text`, spelled as in MILLPOND_LOG; none if it is not a level.
std::optional<LogLevel> parseLogLevel(std::string_view text);

/// MILLPOND_LOG, read once; `warn` if it is unset or unknown.
LogLevel logLevel();
/// Replaces the level of MILLPOND_LOG.
void setLogLevel(LogLevel level);
inline bool logs(LogLevel level) { return level != LogLevel::Off && level <= logLevel(); }

/// Sends messages to this function instead of to standard error.
void setLogDescriptor(int descriptor);

/// Writes one line if the level is enabled. Newlines and control characters of the message become spaces; lines over 8
/// KiB are cut. Preserves errno.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);
[[gnu::format(printf, 2, 0)]] void logList(LogLevel level, const char* format, va_list arguments);

/// As log, but only for the first caller with this flag.
[[gnu::format(printf, 3, 4)]] void logOnce(std::atomic<bool>& said, LogLevel level, const char* format, ...);

}  // namespace millpond
