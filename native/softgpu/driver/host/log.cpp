// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/host/log.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace millpond::softgpu {
namespace {

int configuredLevel() {
  const char* value = std::getenv("MILLPOND_LOG");
  // A file for the client library's trace may follow the level.
  const std::string_view asked = value ? value : "warn";
  const std::string_view name = asked.substr(0, asked.find(','));
  constexpr std::array<std::string_view, 6> names = {"off", "error", "warn", "info", "debug", "trace"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  return static_cast<int>(LogLevel::warn);
}

}  // namespace

void log(LogLevel level, const std::string& message) {
  static const int limit = configuredLevel();
  if (static_cast<int>(level) > limit) return;
  const std::string line = "softgpu: " + message + "\n";
  // One write, so that lines of several threads do not mix. An error is ignored: with standard error closed,
  // it could not be reported.
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace millpond::softgpu
