// SPDX-License-Identifier: Apache-2.0
// What a driver takes of a device for a context and for functions of the device's runtime, as measured on this node. The
// process must have no context on the device yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/device/driver.h"
#include "worker/device/nvml.h"

namespace millpond::worker {

struct MeasuredCosts {
  uint64_t context = 0;
  uint64_t prints = 0;     ///< of a context with a kernel that calls printf
  uint64_t allocates = 0;  ///< of one with a kernel that has called malloc

  bool operator==(const MeasuredCosts&) const = default;
};

/// Measures until two results in a row agree, because they also include memory that other processes take and release
/// meanwhile. None if no two agree, or the device has no room for a context. `uuid`: of the device, for `nvml`.
std::optional<MeasuredCosts> measureCosts(const Driver& driver, CUdevice device, const std::string& uuid,
                                          const Nvml& nvml);

}  // namespace millpond::worker
