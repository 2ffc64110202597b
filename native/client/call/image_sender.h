// SPDX-License-Identifier: Apache-2.0
// Reads images, and sends them in a call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/call/call.h"

namespace millpond::client {

/// The part of a command that describes an image: the offsets of its fatbins, if there are several.
using ImagePlaces = std::vector<uint64_t>;

/// Sends the result of `imageBytes`, for the command that will use it under `handle`.
CUresult sendImage(Call& call, uint64_t handle, std::span<const std::span<const std::byte>> parts, ImagePlaces& places);

/// A file's bytes followed by a zero, as PTX needs it. CUDA_ERROR_FILE_NOT_FOUND if there is none.
CUresult readImageFile(const char* path, std::vector<char>& bytes);

}  // namespace millpond::client
