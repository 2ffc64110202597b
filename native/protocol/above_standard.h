// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/unique_fd.h"

namespace millpond {

/// Returns the descriptor, which closes on exec, under a number that no standard stream has. A program that has closed its
/// standard streams may open them again, or write to them without looking. Without a free number it stays what it is.
inline UniqueFd aboveStandard(UniqueFd fd) {
  if (fd.get() > STDERR_FILENO || !fd) return fd;
  const int before = errno;
  UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  errno = before;
  return moved ? std::move(moved) : std::move(fd);
}

}  // namespace millpond
