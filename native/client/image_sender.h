// SPDX-License-Identifier: Apache-2.0
// Gets images to the worker: by their hash where its host has them, in pieces otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/call.h"

namespace millpond::client {

/// What a command that uses an image says of it: where its fatbins begin, when there are several.
using ImagePlaces = std::vector<uint64_t>;

/// Sends what `imageBytes` found, for the command that will use it under `handle`.
CUresult sendImage(Call& call, uint64_t handle, std::span<const std::span<const std::byte>> parts, ImagePlaces& places);

/// A file's bytes with a zero behind them, as PTX needs it. CUDA_ERROR_FILE_NOT_FOUND when there is none.
CUresult readImageFile(const char* path, std::vector<char>& bytes);

}  // namespace millpond::client
