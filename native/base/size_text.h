// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace millpond {

enum class Rounding { kDown, kUp };

/// A size as the command line formats it, with at most one decimal: `31.2 GiB`, `512 MiB`, `0 MiB`, `12 B`. Used amounts
/// are rounded up and remaining ones down, so that a difference between two sizes stays visible.
std::string sizeText(uint64_t bytes, Rounding rounding = Rounding::kDown);

}  // namespace millpond
