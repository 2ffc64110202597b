// SPDX-License-Identifier: Apache-2.0
// XXH64, the checksum of zstd frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millpond::softgpu {

uint64_t xxhash64(std::span<const std::byte> bytes, uint64_t seed);

}  // namespace millpond::softgpu
