// SPDX-License-Identifier: Apache-2.0
// The integrity check that the CUDA runtime demands from the driver: a keyed hash over values that the driver has
// reported.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millpond::client {

struct IntegrityDevice {
  std::array<uint8_t, 16> uuid{};  ///< as reported by cuDeviceGetUuid
  int32_t pciDomain = 0;           ///< device attribute 50
  int32_t pciBus = 0;              ///< device attribute 33
  int32_t pciDevice = 0;           ///< device attribute 34
};

/// All inputs of the hash. The addresses are those of this process, so a worker cannot compute it.
struct IntegrityQuestion {
  uint32_t driverVersion = 0;  ///< as reported by cuDriverGetVersion
  uint32_t version = 0;        ///< requested by the runtime: its own version, with the method as the last decimal digit
  uint32_t pid = 0;
  uint32_t thread = 0;         ///< low half of the caller's pthread_self()
  uint64_t runtimeTable = 0;   ///< address of the CUDART_INTERFACE table returned before
  uint64_t checkTable = 0;     ///< address of the INTEGRITY_CHECK table returned before
  uint64_t checkFunction = 0;  ///< its slot 1
  uint64_t unixSeconds = 0;    ///< passed by the runtime
};

/// The 16 bytes of the result as the two words that the runtime compares. `devices` in ordinal order.
std::array<uint64_t, 2> integrityAnswer(const IntegrityQuestion& question, std::span<const IntegrityDevice> devices);

}  // namespace millpond::client
