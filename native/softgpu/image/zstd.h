// SPDX-License-Identifier: Apache-2.0
// Decoder of zstd frames (RFC 8878) without dictionaries.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace millpond::softgpu {

/// Decodes the single frame in `in` into `out` and returns the number of bytes written, at most out.size().
/// The content checksum is verified where there is one. Fails on anything malformed, on frames that need a
/// dictionary, on bytes after the frame, and on output larger than `out`.
Result<size_t> decompressZstd(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace millpond::softgpu
