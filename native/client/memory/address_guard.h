// SPDX-License-Identifier: Apache-2.0
// Keeps this process's own memory away from the addresses of device memory, which are the worker's.
#pragma once

#include <cstdint>

namespace millpond::client {

enum class Guard {
  kHeld,      ///< the addresses are ours, and nothing can be put there
  kOccupied,  ///< memory of this process lies there
  kUnable,    ///< the system does not let us: the addresses are free as of now
};

/// Takes `bytes` at `address` out of use, without taking memory.
Guard guardAddresses(uint64_t address, uint64_t bytes) noexcept;
/// The same somewhere, at a multiple of `alignment` (a power of two), at or below `below` if that is not 0. 0 when the
/// system does not let us.
uint64_t guardAnywhere(uint64_t bytes, uint64_t alignment, uint64_t below) noexcept;
/// Whether memory of this process lies there.
bool isMapped(uint64_t address) noexcept;
void unguardAddresses(uint64_t address, uint64_t bytes) noexcept;

}  // namespace millpond::client
