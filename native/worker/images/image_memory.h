// SPDX-License-Identifier: Apache-2.0
// How much device memory a driver takes for the variables and constants of a module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace millpond::worker {

/// Returns the most memory that a driver takes for the variables that an image declares (a fatbin, an ELF cubin, or PTX with or
/// without a final zero), on devices of any of these architectures (10 * major + minor); code is not counted. UINT64_MAX where
/// it is more than a number holds. None where the image is not understood, or the size of a variable is unknown.
std::optional<uint64_t> imageMemory(std::span<const std::byte> image, std::span<const unsigned> archs);

}  // namespace millpond::worker
