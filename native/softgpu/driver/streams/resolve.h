// SPDX-License-Identifier: Apache-2.0
// From the handle of a stream to its context and queue.
#pragma once

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/handle_table.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// Resolves a stream handle: 0 and CU_STREAM_LEGACY are the legacy stream of `current`, CU_STREAM_PER_THREAD its stream
/// of the calling thread. CUDA_ERROR_INVALID_HANDLE for a handle that is not in `streams`,
/// CUDA_ERROR_CONTEXT_IS_DESTROYED or the context's fault if the stream can no longer be used.
CUresult resolveStream(CUstream handle, const ContextPtr& current, const HandleTable<Stream, CUstream>& streams,
                       StreamTarget* target);

}  // namespace millpond::softgpu
