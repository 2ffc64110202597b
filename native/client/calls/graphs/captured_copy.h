// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "client/call/call.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client::api {

/// Adds a copy of any shape and kind of memory to the graph of the stream's capture, as the stream's next node.
CUresult captureCopy(Call& call, uint64_t stream, const CUDA_MEMCPY3D& copy);

}  // namespace millpond::client::api
