// SPDX-License-Identifier: Apache-2.0
// How much device memory a driver takes for the variables and constants of a module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace millpond::worker {

/// Of an image (a fatbin, an ELF cubin, or PTX with or without a final zero): the most that a driver takes for what is
/// declared in it, on devices of any of these architectures (10 * major + minor); code is not counted. UINT64_MAX where it
/// is more than can be said. Nothing where the image is not understood, or where it cannot be told how large a variable is.
std::optional<uint64_t> imageMemory(std::span<const std::byte> image, std::span<const unsigned> archs);

}  // namespace millpond::worker
