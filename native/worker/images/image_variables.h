// SPDX-License-Identifier: Apache-2.0
// The variables of a module, and their contents when it has been loaded: these show whether a program has written any of
// them.
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

/// Returns all variables in global memory that a driver may make of an image (a fatbin, an ELF cubin, or PTX with or without a
/// final zero) on a device of one of these architectures (10 * major + minor), except for the texts that compilers make of
/// string literals, which no program may write. Constants are not among them: kernels cannot write them. None where the image
/// is not understood, or the contents are unknown.
std::optional<std::vector<ImageVariable>> imageVariables(std::span<const std::byte> image,
                                                         std::span<const unsigned> archs);

}  // namespace millpond::worker
