// SPDX-License-Identifier: Apache-2.0
// Determines the length of an image: drivers get a pointer to code without a length, and trust its headers.
#pragma once

#include <cstdint>

namespace millpond {

inline constexpr uint32_t kWrapperMagic = 0x466243b1;
inline constexpr uint32_t kFatbinMagic = 0xba55ed50;

/// Bytes of a fatbin, an ELF cubin, or of PTX with its final zero. `known`: bytes that certainly exist; no more are
/// read. 0 when the image is none of these or does not end within them.
uint64_t imageExtent(const void* image, uint64_t known) noexcept;

}  // namespace millpond
