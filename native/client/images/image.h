// SPDX-License-Identifier: Apache-2.0
// Determines the length of images: programs pass them to the driver without a length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// A program that passes a pointer is responsible for the memory behind it.
inline constexpr size_t kUnknownBytes = SIZE_MAX;

/// The bytes to send for `image`, of which `known` are certainly there: a fatbin, an ELF cubin, or PTX with its final
/// zero. A wrapper stands for its fatbin; a wrapper of device code that was linked at build time from several files
/// (nvcc -rdc=true) for the linked one and its inputs. CUDA_ERROR_INVALID_IMAGE if it is none of these.
CUresult imageBytes(const void* image, size_t known, std::vector<std::span<const std::byte>>& parts) noexcept;

/// Whether this is the structure in a compiled program that points to its fatbin. cuModuleLoadData refuses it, and
/// cuLibraryLoadData accepts it.
bool isWrapper(const void* image) noexcept;

}  // namespace millpond::client
