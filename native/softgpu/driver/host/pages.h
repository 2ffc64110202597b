// SPDX-License-Identifier: Apache-2.0
// Memory from the operating system, in whole pages.
#pragma once

#include <cstdint>

namespace millpond::softgpu {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

/// `bytes` rounded up to a multiple of `unit`, a power of two; 0 if the result exceeds 64 bits.
constexpr uint64_t roundUp(uint64_t bytes, uint64_t unit) { return (bytes + (unit - 1)) & ~(unit - 1); }
constexpr bool isAligned(uint64_t value, uint64_t unit) { return (value & (unit - 1)) == 0; }

enum class Protection { none, readWrite };

/// Private zeroed memory that costs nothing until it is touched, at a multiple of `alignment`. 0: there is none.
uint64_t mapPages(uint64_t bytes, uint64_t alignment, Protection protection);
/// The same at exactly this address; false if something else is there.
bool mapPagesAt(uint64_t address, uint64_t bytes, Protection protection);
void unmapPages(uint64_t address, uint64_t bytes);
/// Whether every page of the range is mapped in this process.
bool isMapped(uint64_t address, uint64_t bytes);

}  // namespace millpond::softgpu
