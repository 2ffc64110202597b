// SPDX-License-Identifier: Apache-2.0
// Packs kernel parameters in this process, where their addresses are valid.
#pragma once

#include <cstddef>
#include <span>

#include "client/state/handle_table.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// The longest parameter list of any architecture.
inline constexpr size_t kMaxParameterBytes = 32764;

/// Packs the parameters of either form into `bytes`, which has room for all of them and is unchanged beyond the end of a
/// short buffer. CUDA_ERROR_INVALID_VALUE if pointers are missing, a buffer is empty, or both forms are given;
/// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES for a buffer that is longer than the parameters.
CUresult packParameters(const FunctionInfo& info, void** kernelParams, void** extra, std::span<std::byte> bytes);

}  // namespace millpond::client
