// SPDX-License-Identifier: Apache-2.0
// Entry points beyond CUDA's, for workers that restrict file access before they initialise the driver.
#include <string>

#include "softgpu/driver/host/configuration.h"

/// Creates the directory of the devices' state if it is missing, and returns its path, which is valid until the next
/// call. Null: it cannot be created.
extern "C" [[gnu::visibility("default")]] const char* millpond_softgpu_state_directory() {
  static std::string path;
  path = millpond::softgpu::stateDirectory();
  return millpond::softgpu::makeStateDirectory(path) ? path.c_str() : nullptr;
}
