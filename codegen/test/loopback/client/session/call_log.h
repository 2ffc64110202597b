// SPDX-License-Identifier: Apache-2.0
// Nobody is told of failures.
#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

inline CUresult told(const char*, CUresult result) { return result; }

}  // namespace millpond::client
