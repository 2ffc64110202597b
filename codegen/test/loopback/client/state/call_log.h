// SPDX-License-Identifier: Apache-2.0
// Failures are not reported.
#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

inline CUresult told(const char*, CUresult result) { return result; }

}  // namespace millpond::client
