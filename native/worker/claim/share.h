// SPDX-License-Identifier: Apache-2.0
// The share of a device's time that a claim has.
#pragma once

#include <cstdint>

namespace millpond::worker {

enum class ServiceClass : uint32_t {
  kGuaranteed,  ///< its share, never more
  kBurstable,   ///< its share, and what is idle
  kBestEffort,  ///< what is idle
};

struct Share {
  ServiceClass serviceClass = ServiceClass::kGuaranteed;
  uint32_t percent = 100;  ///< 1 to 100; how best-effort claims stand to each other
  int32_t priority = 0;    ///< among claims of the same class

  /// Whether it may have less than the whole GPU although nobody else is there.
  bool isCapped() const { return serviceClass == ServiceClass::kGuaranteed && percent < 100; }
};

}  // namespace millpond::worker
