// SPDX-License-Identifier: Apache-2.0
// The variables of a module, and what they hold when it has been loaded: by that it can be told whether a program has
// written any of them.
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

/// Of an image (a fatbin, an ELF cubin, or PTX with or without a final zero), all variables in global memory that a driver
/// may make of it on a device of one of these architectures (10 * major + minor), but for the texts that compilers make of
/// string literals, which no program may write. Constants are not among them: kernels cannot write them. Nothing where the
/// image is not understood, or where it cannot be told what they hold.
std::optional<std::vector<ImageVariable>> imageVariables(std::span<const std::byte> image, std::span<const unsigned> archs);

}  // namespace millpond::worker
