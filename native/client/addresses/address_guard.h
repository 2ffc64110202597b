// SPDX-License-Identifier: Apache-2.0
// Keeps this process's own memory away from the addresses of device memory, which are the worker's.
#pragma once

#include <cstdint>

namespace millpond::client {

enum class Guard {
  kHeld,      ///< the addresses are reserved, and nothing can be mapped there
  kOccupied,  ///< memory of this process is there
  kUnable,    ///< the system refused: the addresses were free at that moment
};

/// Reserves `bytes` at `address`, without using memory.
Guard guardAddresses(uint64_t address, uint64_t bytes) noexcept;
/// The same anywhere, at a multiple of `alignment` (a power of two), at or below `below` if that is not 0. 0 if the
/// system refuses.
uint64_t guardAnywhere(uint64_t bytes, uint64_t alignment, uint64_t below) noexcept;
/// Whether this process has memory there.
bool isMapped(uint64_t address) noexcept;
void unguardAddresses(uint64_t address, uint64_t bytes) noexcept;

}  // namespace millpond::client
