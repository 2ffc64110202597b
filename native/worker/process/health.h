// SPDX-License-Identifier: Apache-2.0
// Reports unhealthy devices of a driver to the agent.
#pragma once

#include "base/result.h"
#include "worker/device/driver.h"
#include "worker/device/nvml.h"

namespace millpond::worker {

/// Checks the devices now and every two seconds until standard input ends. Each check prints, as a line of JSON, the
/// unhealthy devices with the reason, and the faults that the driver has reported since the last one. Missing lines
/// therefore mean that the driver does not respond.
Status watchHealth(const Driver& driver, Nvml& nvml);

}  // namespace millpond::worker
