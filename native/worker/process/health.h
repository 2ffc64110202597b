// SPDX-License-Identifier: Apache-2.0
// Which devices of a driver must not be used any more, for the agent.
#pragma once

#include "base/result.h"
#include "worker/device/driver.h"
#include "worker/device/nvml.h"

namespace millpond::worker {

/// Looks at the devices now and every two seconds, and each time prints those that are ill now, with the reason, and what the
/// driver has reported since, as a line of JSON; until standard input ends. So whoever hears nothing knows that the driver gives no answer.
Status watchHealth(const Driver& driver, Nvml& nvml);

}  // namespace millpond::worker
