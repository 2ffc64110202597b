// SPDX-License-Identifier: Apache-2.0
// Sizes of the elements of arrays.
#pragma once

#include <cstdint>

#include "cuda/gen/cuda_api.h"

namespace millpond {

/// The number of planes of a format, and the size of a sample in bytes. Such formats have three channels.
struct Planes {
  unsigned count = 0;  ///< 0 for other formats
  uint32_t sampleBytes = 0;
};
Planes planesOf(CUarray_format format);

/// Bytes of one element, or of one sample where the format has planes; 0 for formats that are not supported.
uint32_t elementBytes(CUarray_format format, unsigned channels);

}  // namespace millpond
