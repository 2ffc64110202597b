// SPDX-License-Identifier: Apache-2.0
// Writes a program as CUDA C on the driver API.
#pragma once

#include <string>

#include "testing/model/program.h"

namespace millpond::model {

/// A body for main(): what is allocated, and the calls of each thread in the order in which they were made. What checks a
/// call's result is left out.
std::string printProgram(const Program& program);

}  // namespace millpond::model
