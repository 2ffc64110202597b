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
  UniqueFd kept;   ///< its other end, which tells when the last copy of the given one is closed

  /// Nothing if the process has no descriptors left. Empty: the file carries nothing.
  static std::optional<ShareableFile> carrying(std::span<const std::byte> handle);
  /// The handle that a file carries; false for a file that carries none of that size.
  static bool read(int file, std::span<std::byte> handle);
};

}  // namespace millpond::client
