// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "base/log.h"
#include "cupti/types.h"

namespace millpond::profiler {

/// "Not supported", logged once.
inline Result refuse(const char* name, std::atomic<bool>& said) {
  logOnce(said, LogLevel::Warn, "%s is not supported: docs/reference/cupti.md lists what is", name);
  return kNotSupported;
}

}  // namespace millpond::profiler
