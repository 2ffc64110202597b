// SPDX-License-Identifier: Apache-2.0
// Device memory that a driver takes for the variables and constants of a module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace millpond::worker {

/// Returns the maximum memory that a driver takes for the variables that an image declares (a fatbin, an ELF cubin, or
/// PTX with or without a terminating zero), on devices of any of these architectures (10 * major + minor); code is not
/// counted. UINT64_MAX on overflow. None if the image cannot be parsed, or the size of a variable is unknown.
std::optional<uint64_t> imageMemory(std::span<const std::byte> image, std::span<const unsigned> archs);

}  // namespace millpond::worker
