// SPDX-License-Identifier: Apache-2.0
// Copies and fills that a stream is given: work, or nodes of the graph into which the stream is captured.
#pragma once

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/engine/transfer.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// CUDA_ERROR_INVALID_VALUE if an end is not memory of its declared location. If that is detected later, because the
/// memory was freed in the meantime, the context fails.
CUresult enqueueCopy(const StreamTarget& stream, const Copy& copy, Return when);

/// Waits only for fills of host memory, and only if `when` says so.
CUresult enqueueFill(const StreamTarget& stream, const Fill& fill, Return when);

}  // namespace millpond::softgpu
