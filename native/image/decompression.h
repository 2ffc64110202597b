// SPDX-License-Identifier: Apache-2.0
// Decompresses the formats that compilers use for device code, with the libraries that define the formats. The bytes
// may be hostile.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace millpond::image {

/// Decodes one block of the LZ4 block format (no frame, no dictionary) into `out` and returns the number of bytes written,
/// at most out.size(). Fails on a truncated block, an offset before the start of `out`, and output larger than `out`.
Result<size_t> decompressLz4Block(std::span<const std::byte> in, std::span<std::byte> out);

/// Decodes the single zstd frame (RFC 8878) in `in` into `out` and returns the number of bytes written, at most
/// out.size(). The content checksum is verified if there is one. Fails on anything malformed, on frames that need a
/// dictionary, on frames of formats older than the RFC, on bytes after the frame, and on output larger than `out`.
Result<size_t> decompressZstd(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace millpond::image
