// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "worker/gen/driver_table.h"

namespace millpond::worker {

/// Loads the driver library that this worker executes on, a real one or the software GPU, and initialises it. It is
/// never unloaded: drivers keep threads of their own.
Result<Driver> loadDriver(const std::string& path);

/// "cuDeviceGet answered CUDA_ERROR_INVALID_DEVICE".
std::string failure(const Driver& driver, const char* call, CUresult rc);

}  // namespace millpond::worker
