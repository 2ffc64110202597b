// SPDX-License-Identifier: Apache-2.0
// Decoder of the LZ4 block format (no frame, no dictionary).
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace millpond::softgpu {

/// Decodes one block into `out` and returns the number of bytes written, at most out.size(). Fails on a
/// truncated block, an offset before the start of `out`, and output larger than `out`.
Result<size_t> decompressLz4Block(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace millpond::softgpu
