// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), with the processor's instructions where available.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace millpond {

using Sha256 = std::array<std::byte, 32>;

Sha256 sha256(std::span<const std::byte> data);
/// Like `sha256`, without the processor's SHA instructions.
Sha256 sha256Portable(std::span<const std::byte> data);
/// 64 hexadecimal digits.
std::string hex(const Sha256& hash);

}  // namespace millpond
