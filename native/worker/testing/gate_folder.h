// SPDX-License-Identifier: Apache-2.0
// A test's own folder for the tables that workers share; deleted with the test.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "testing/check.h"

namespace millpond::worker::gate {

struct GateFolder {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-gates-XXXXXX").string();
  GateFolder() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~GateFolder() { std::filesystem::remove_all(path); }
  GateFolder(const GateFolder&) = delete;
  GateFolder& operator=(const GateFolder&) = delete;
  /// The table of a device.
  std::string gate() const { return path + "/GPU-1"; }
};

}  // namespace millpond::worker::gate
