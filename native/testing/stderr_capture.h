// SPDX-License-Identifier: Apache-2.0
// Captures standard error, for tests of messages.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "testing/check.h"

namespace millpond::testing {

/// What `body` writes to standard error, at most the size of a pipe (64 KiB).
inline std::string captured(const std::function<void()>& body) {
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const UniqueFd reading(ends[0]);
  const UniqueFd saved(::dup(STDERR_FILENO));
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  body();
  ::dup2(saved.get(), STDERR_FILENO);
  std::string text;
  char chunk[4096];
  ssize_t n = 0;
  while ((n = ::read(reading.get(), chunk, sizeof chunk)) > 0) text.append(chunk, static_cast<size_t>(n));
  return text;
}

}  // namespace millpond::testing
