// SPDX-License-Identifier: Apache-2.0
// The search for addresses in bytes that are about to be copied: it looks at every word of every copy to a device, so it has
// to be several times as fast as the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millpond::client {

/// Returns the offset of the first word in [least, least + range), at a multiple of 8 of `bytes`; at least
/// `bytes.size()` if there is none. The sum may wrap around.
size_t findWord(std::span<const std::byte> bytes, uint64_t least, uint64_t range);

}  // namespace millpond::client
