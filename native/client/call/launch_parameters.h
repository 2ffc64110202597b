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

/// Packs the parameters of either form into `bytes`, which has room for all of them. CUDA_ERROR_INVALID_VALUE if they
/// are incomplete or given in both forms.
CUresult packParameters(const FunctionInfo& info, void** kernelParams, void** extra, std::span<std::byte> bytes);

}  // namespace millpond::client
