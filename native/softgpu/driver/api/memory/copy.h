// SPDX-License-Identifier: Apache-2.0
// The driver's structure for copies in three dimensions.
#pragma once

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/engine/transfer.h"

namespace millpond::softgpu::api {

/// Both ends as addresses and strides; CUDA_ERROR_INVALID_VALUE if they are inconsistent.
CUresult resolveCopy(const CUDA_MEMCPY3D& params, Copy* copy);

}  // namespace millpond::softgpu::api
