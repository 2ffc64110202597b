// SPDX-License-Identifier: Apache-2.0
// Device memory that a driver takes for a module: its variables and constants, and what its calls of the device's runtime cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace millpond::worker {

struct ImageMemory {
  uint64_t variables = 0;  ///< bytes, constants included; UINT64_MAX on overflow
  bool prints = false;     ///< names printf of the device's runtime
  bool allocates = false;  ///< names its malloc or free

  /// The memory of both.
  void add(const ImageMemory& other);
  /// The larger amounts of the two, which suffice for either.
  void cover(const ImageMemory& other);
};

/// Returns the maximum memory that a driver takes for an image (a fatbin, an ELF cubin, or PTX with or without a
/// terminating zero), on devices of any of these architectures (10 * major + minor); code is not counted. None if the
/// image cannot be parsed, or the size of a variable is unknown.
std::optional<ImageMemory> imageMemory(std::span<const std::byte> image, std::span<const unsigned> archs);

}  // namespace millpond::worker
