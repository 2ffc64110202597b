// SPDX-License-Identifier: Apache-2.0
// What a driver library offers on this host, for the agent.
#pragma once

#include <string>

#include "base/result.h"
#include "worker/device/driver.h"

namespace millpond::worker {

/// Whether a device is one of the software GPU's.
bool isSoftwareGpu(const Driver& driver, CUdevice device);

/// The description that `--probe` prints, or why there is none.
Result<std::string> probeDevices(const Driver& driver);

}  // namespace millpond::worker
