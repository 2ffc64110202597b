// SPDX-License-Identifier: Apache-2.0
// Files that carry the handle of something shared, so that programs hand it on as they hand on files.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/unique_fd.h"

namespace millpond::client {

struct ShareableFile {
  UniqueFd given;  ///< for the program
  UniqueFd kept;   ///< its other end, which detects when the last copy of the given one is closed

  /// None if the process has no descriptors left. Empty: the file carries no handle.
  static std::optional<ShareableFile> carrying(std::span<const std::byte> handle);
  /// The handle that a file carries; false if it carries none of this size.
  static bool read(int file, std::span<std::byte> handle);
};

}  // namespace millpond::client
