// SPDX-License-Identifier: Apache-2.0
// base64url without padding (RFC 4648, section 5).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millpond {

std::string base64UrlEncode(std::span<const std::byte> bytes);

/// None for a character outside the alphabet, padding, an impossible length or leftover bits that are not
/// zero, so that each byte string has exactly one accepted spelling.
std::optional<std::vector<std::byte>> base64UrlDecode(std::string_view text);

}  // namespace millpond
