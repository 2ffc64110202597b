// SPDX-License-Identifier: Apache-2.0
// The object behind a CUlinkState handle: PTX texts that become one.
#pragma once

#include <string>
#include <vector>

#include "softgpu/driver/program/program_loader.h"

namespace millpond::softgpu {

struct Link {
  JitOptions options;  // the program's arrays, which it keeps until the end of the link
  std::vector<std::string> texts;
  std::string linked;
};

}  // namespace millpond::softgpu
