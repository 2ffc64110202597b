// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millpond {

/// Maximum length of a readable name; longer ones are truncated.
inline constexpr size_t kMostReadable = 4096;

/// The name of a C++ function as in the source; any other name as it is. Takes a bounded time and memory, whatever the name:
/// back-references let a mangled name of some hundred bytes stand for one that no memory holds.
std::string readableName(std::string_view mangled);

}  // namespace millpond
