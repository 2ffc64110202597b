// SPDX-License-Identifier: Apache-2.0
// Addresses where neither the system nor a driver places mappings by itself. Clients mirror managed memory at its
// address, and kernels reach client memory at the client's address, so the mappings of one process must not collide
// with those of the other.
#pragma once

#include <cstdint>

namespace millpond {

/// Place n begins at first + n * step.
struct AddressPlaces {
  uint64_t first;
  uint64_t step;
};

#ifdef __SANITIZE_THREAD__
// The client uses no other addresses for the program's memory. For memory of devices, by their ordinal.
inline constexpr AddressPlaces kDevicePlaces{0x7e80'0000'0000, uint64_t{1} << 37};
/// Reserved for pinned memory of processes, each of which begins at a different address.
inline constexpr AddressPlaces kPinnedPlaces{0x7f80'0000'0000, uint64_t{1} << 30};
#else
inline constexpr AddressPlaces kDevicePlaces{uint64_t{0x20} << 40, uint64_t{1} << 41};
inline constexpr AddressPlaces kPinnedPlaces{uint64_t{0x40} << 40, uint64_t{1} << 36};
#endif

}  // namespace millpond
