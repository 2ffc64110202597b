// SPDX-License-Identifier: Apache-2.0
// Where a command leads the worker or a kernel, by the description of the commands: no call has to say so itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/addresses/memory_map.h"
#include "protocol/gen/command_layouts.h"

namespace millpond::client {

/// An address, and the one before it: the address just past the end also belongs to the memory, even if something else
/// begins there.
inline void addPlaces(std::vector<uint64_t>& places, uint64_t address) {
  places.push_back(address);
  places.push_back(address - 1);
}

/// Places named by the command where memory of this process alone may be; `fixed` and `tails`: the command as sent.
std::vector<uint64_t> namedPlaces(const MemoryMap& memory, const cmd::CommandLayout& layout,
                                  std::span<const std::byte> fixed, std::span<const std::span<const std::byte>> tails);

}  // namespace millpond::client
