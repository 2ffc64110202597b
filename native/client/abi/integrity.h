// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime asks the driver for before it trusts it: a keyed hash over what the driver has told
// it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millpond::client {

struct IntegrityDevice {
  std::array<uint8_t, 16> uuid{};  ///< as cuDeviceGetUuid reports it
  int32_t pciDomain = 0;           ///< device attribute 50
  int32_t pciBus = 0;              ///< device attribute 33
  int32_t pciDevice = 0;           ///< device attribute 34
};

/// Everything that enters the hash. The addresses are those of this process, so the answer cannot come from a
/// worker.
struct IntegrityQuestion {
  uint32_t driverVersion = 0;  ///< as cuDriverGetVersion reports it
  uint32_t version = 0;        ///< asked for by the runtime
  uint32_t pid = 0;
  uint32_t thread = 0;         ///< low half of the caller's pthread_self()
  uint64_t runtimeTable = 0;   ///< address of the CUDART_INTERFACE table that was handed out
  uint64_t checkTable = 0;     ///< address of the INTEGRITY_CHECK table that was handed out
  uint64_t checkFunction = 0;  ///< its slot 1
  uint64_t unixSeconds = 0;    ///< given by the runtime
};

/// The 16 bytes of the answer as the two words that the runtime compares. `devices` in ordinal order.
std::array<uint64_t, 2> integrityAnswer(const IntegrityQuestion& question, std::span<const IntegrityDevice> devices);

}  // namespace millpond::client
