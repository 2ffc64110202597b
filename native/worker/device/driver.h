// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "worker/device/gen/driver_table.h"

namespace millpond::worker {

/// A driver library that is loaded but not initialised.
struct DriverLibrary {
  Driver driver;
  /// The directory for the state that a card keeps in its kernel module; set only for the software GPU, null for other
  /// drivers.
  const char* (*stateDirectory)() = nullptr;
};

/// Loads the driver library of this worker, a real one or the software GPU. It is never unloaded, because drivers keep
/// threads of their own.
Result<DriverLibrary> openDriver(const std::string& path);

/// Initialises it; `path` is used in the error only.
Status startDriver(const Driver& driver, const std::string& path);

/// "cuDeviceGet answered CUDA_ERROR_INVALID_DEVICE".
std::string failure(const Driver& driver, const char* call, CUresult rc);

}  // namespace millpond::worker
