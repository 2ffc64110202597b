// SPDX-License-Identifier: Apache-2.0
// The variables of a module, and their initial contents: these show whether a program has written any of them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace millpond::worker {

struct ImageVariable {
  std::string name;
  std::vector<std::byte> initial;
};

/// Returns all variables in global memory that a driver may create for an image (a fatbin, an ELF cubin, or PTX with or
/// without a terminating zero) on a device of one of these architectures (10 * major + minor), except for the texts
/// that compilers generate for string literals, which no program may write. Constants are excluded: kernels cannot
/// write them. None if the image cannot be parsed, or the contents are unknown.
std::optional<std::vector<ImageVariable>> imageVariables(std::span<const std::byte> image,
                                                         std::span<const unsigned> archs);

}  // namespace millpond::worker
