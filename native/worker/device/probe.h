// SPDX-License-Identifier: Apache-2.0
// Describes the devices that a driver library offers on this host, for the agent.
#pragma once

#include <string>

#include "base/result.h"
#include "worker/device/driver.h"

namespace millpond::worker {

/// Whether a device belongs to the software GPU.
bool isSoftwareGpu(const Driver& driver, CUdevice device);

/// The description that `--probe` prints, or the error.
Result<std::string> probeDevices(const Driver& driver);

/// The output of `--costs`: the memory that the driver takes of each device that can be measured (MeasuredCosts); or
/// the error.
Result<std::string> measureDevices(const Driver& driver);

}  // namespace millpond::worker
