// SPDX-License-Identifier: Apache-2.0
// Entry points beyond CUDA's, for workers that restrict file access before they initialise the driver.
#include <string>

#include "softgpu/driver/host/configuration.h"

/// Makes the directory of the devices' state where there is none, and returns its path, which is good until the next call.
/// Null: it cannot be made.
extern "C" [[gnu::visibility("default")]] const char* millpond_softgpu_state_directory() {
  static std::string path;
  path = millpond::softgpu::stateDirectory();
  return millpond::softgpu::makeStateDirectory(path) ? path.c_str() : nullptr;
}
