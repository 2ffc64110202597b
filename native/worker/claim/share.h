// SPDX-License-Identifier: Apache-2.0
// The share of a device's time that a claim has.
#pragma once

#include <cstdint>

namespace millpond::worker {

enum class ServiceClass : uint32_t {
  kGuaranteed,  ///< its share, never more
  kBurstable,   ///< its share, and idle time
  kBestEffort,  ///< idle time only
};

struct Share {
  ServiceClass serviceClass = ServiceClass::kGuaranteed;
  uint32_t percent = 100;  ///< 1 to 100; the weight among best-effort claims
  int32_t priority = 0;    ///< among claims of the same class
  bool owes = false;       ///< gets no time beyond its share while another claim that is within its share wants time

  /// Whether the claim may get less than the whole GPU although no other claim uses it.
  bool isCapped() const { return serviceClass == ServiceClass::kGuaranteed && percent < 100; }
};

}  // namespace millpond::worker
