// SPDX-License-Identifier: Apache-2.0
// Arrays. Their elements lie row behind row, slice behind slice, in device memory of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::softgpu {

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uint64_t base = 0;
  uint64_t elementBytes = 0;
  bool isPart = false;  ///< a level of a mipmapped array, or a plane of a multi-planar one, with which it ends
  std::vector<std::shared_ptr<Array>> planes;  ///< of a multi-planar format, stored one after the other

  uint64_t rowBytes() const { return descriptor.Width * elementBytes; }
  uint64_t rows() const { return std::max<uint64_t>(descriptor.Height, 1); }
  uint64_t slices() const { return std::max<uint64_t>(descriptor.Depth, 1); }
  uint64_t bytes() const {
    if (planes.empty()) return rowBytes() * rows() * slices();
    uint64_t sum = 0;
    for (const auto& plane : planes) sum += plane->bytes();
    return sum;
  }
};

struct MipmappedArray {
  std::vector<std::shared_ptr<Array>> levels;

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& level : levels) sum += level->bytes();
    return sum;
  }
};

/// Bytes of an element; 0 for formats that are not supported.
uint64_t elementBytes(CUarray_format format, unsigned channels);

}  // namespace millpond::softgpu
