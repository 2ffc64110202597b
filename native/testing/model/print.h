// SPDX-License-Identifier: Apache-2.0
// Writes a program as CUDA C on the driver API.
#pragma once

#include <string>

#include "testing/model/program.h"

namespace millpond::model {

/// A body for main(): the allocations, and the calls of each thread in order. Checks of results are omitted.
std::string printProgram(const Program& program);

}  // namespace millpond::model
