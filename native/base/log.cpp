// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/log_request.h"

namespace millpond {

namespace {
constexpr int kUnread = -1;
std::atomic<int> currentLevel{kUnread};
std::atomic<int> descriptor{STDERR_FILENO};
constexpr const char* kNames[] = {"off", "error", "warn", "info", "debug", "trace"};
}  // namespace

std::optional<LogLevel> parseLogLevel(std::string_view text) {
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
    if (text == kNames[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

std::optional<LogRequest> parseLogRequest(std::string_view text) {
  const size_t comma = text.find(',');
  const std::optional<LogLevel> level = parseLogLevel(text.substr(0, comma));
  const std::string_view file = !level ? text : comma == text.npos ? "" : text.substr(comma + 1);
  const bool isFile = file.find('/') != file.npos;
  if (!isFile && (!level || comma != text.npos)) return std::nullopt;
  return LogRequest{level.value_or(LogLevel::Warn), file};
}

void setLogDescriptor(int to) { descriptor.store(to, std::memory_order_relaxed); }

void setLogLevel(LogLevel level) { currentLevel.store(static_cast<int>(level), std::memory_order_relaxed); }

LogLevel logLevel() {
  const int known = currentLevel.load(std::memory_order_relaxed);
  if (known != kUnread) return static_cast<LogLevel>(known);
  const char* text = std::getenv("MILLPOND_LOG");
  const std::optional<LogRequest> wanted = parseLogRequest(text ? text : "warn");
  int expected = kUnread;
  const bool first =
      currentLevel.compare_exchange_strong(expected, static_cast<int>(wanted.value_or(LogRequest{}).level));
  if (first && !wanted) {
    log(LogLevel::Warn,
        "MILLPOND_LOG=%.32s is not a level; use off, error, warn, info, debug or trace, or a file with a / in its name",
        text);
  }
  return static_cast<LogLevel>(currentLevel.load(std::memory_order_relaxed));
}

void logList(LogLevel level, const char* format, va_list arguments) {
  if (!logs(level)) return;
  const int savedErrno = errno;
  char line[8192];
  int length = std::snprintf(line, sizeof line, "millpond: %s: ", kNames[static_cast<int>(level)]);
  const int wanted = std::vsnprintf(line + length, sizeof line - static_cast<size_t>(length), format, arguments);
  const int start = length;
  if (wanted > 0) length += wanted;
  const int room = static_cast<int>(sizeof line) - 1;  // the newline replaces the NUL
  if (length > room) length = room;
  for (int i = start; i < length; ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c < 0x20 || c == 0x7f) line[i] = ' ';
  }
  line[length++] = '\n';
  // Standard error may be closed or full; a lost diagnostic must not be a failure.
  while (::write(descriptor.load(std::memory_order_relaxed), line, static_cast<size_t>(length)) < 0 && errno == EINTR) {
  }
  errno = savedErrno;
}

void log(LogLevel level, const char* format, ...) {
  if (!logs(level)) return;
  va_list arguments;
  va_start(arguments, format);
  logList(level, format, arguments);
  va_end(arguments);
}

void logOnce(std::atomic<bool>& said, LogLevel level, const char* format, ...) {
  if (!logs(level) || said.load(std::memory_order_relaxed) || said.exchange(true)) return;
  va_list arguments;
  va_start(arguments, format);
  logList(level, format, arguments);
  va_end(arguments);
}

}  // namespace millpond
