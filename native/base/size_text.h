// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace millpond {

enum class Rounding { kDown, kUp };

/// A size for eyes, as the command line writes them, with at most one decimal: `31.2 GiB`, `512 MiB`, `0 MiB`, `12 B`.
/// What is in use is rounded up and what is left down, so that one that is greater than the other is shown so.
std::string sizeText(uint64_t bytes, Rounding rounding = Rounding::kDown);

}  // namespace millpond
