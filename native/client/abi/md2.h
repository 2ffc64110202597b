// SPDX-License-Identifier: Apache-2.0
// MD2 (RFC 1319), and HMAC (RFC 2104) with it. Worthless as cryptography, but the CUDA runtime requires it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millpond::client {

using Md2Digest = std::array<uint8_t, 16>;

Md2Digest md2(std::span<const uint8_t> message);
Md2Digest hmacMd2(std::span<const uint8_t> key, std::span<const uint8_t> message);

}  // namespace millpond::client
