// SPDX-License-Identifier: Apache-2.0
// The two ends of a copy in several dimensions, resolved to arrays and addresses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "client/call/call.h"
#include "client/calls/memory/copy_sides.h"

namespace millpond::client::api {

/// One end of a copy: a position in an array, or the address of the first byte.
struct End {
  uint64_t array = 0;
  size_t x = 0, y = 0, z = 0;
  uint64_t address = 0;
  size_t pitch = 0;
  size_t rows = 0;     ///< in a slice
  bool isOwn = false;  ///< memory of this process that the worker cannot access

  uint64_t row(size_t y0, size_t z0) const { return address + (z0 * rows + y0) * pitch; }
  /// The part of this end that begins at a row of a slice.
  End from(size_t y0, size_t z0) const {
    End part = *this;
    if (array) {
      part.y += y0;
      part.z += z0;
    } else {
      part.address = row(y0, z0);
    }
    return part;
  }
};

/// Whether a copy lies within an array. Formats of blocks or planes, which have units of their own, are checked by the worker's
/// driver.
inline bool fitsArray(const ArrayInfo& array, const Side& side, const Extent& extent) {
  const auto& [width, height, depth, format, channels, flags] = array.desc;
  const auto isWithin = [](size_t first, size_t count, size_t most) { return first <= most && count <= most - first; };
  return format > CU_AD_FORMAT_FLOAT || (isWithin(side.x, extent.width, width * array.elementBytes) &&
                                         isWithin(side.y, extent.height, std::max<size_t>(height, 1)) &&
                                         isWithin(side.z, extent.depth, std::max<size_t>(depth, 1)));
}

/// CU_DEVICE_ATTRIBUTE_MAX_PITCH of every device.
inline constexpr size_t kMaxPitch = 0x7fffffff;

/// Resolves a side of a copy of that extent.
inline CUresult resolveEnd(Call& call, const Side& side, const Extent& extent, End& end) {
  if (side.lod != 0) return CUDA_ERROR_INVALID_VALUE;
  if (side.type == CU_MEMORYTYPE_ARRAY) {
    if (const CUresult r = call.handle(HandleKind::kArray, side.array, end.array); r != CUDA_SUCCESS) return r;
    if (const auto array = call.remote().arrays.find(side.array); array && !fitsArray(*array, side, extent))
      return CUDA_ERROR_INVALID_VALUE;
    end.x = side.x;
    end.y = side.y;
    end.z = side.z;
    return CUDA_SUCCESS;
  }
  const size_t row = side.x + extent.width;
  if (side.pitch > kMaxPitch || row < extent.width ||
      (side.pitch != 0 && side.pitch < row && extent.height * extent.depth > 1))
    return CUDA_ERROR_INVALID_VALUE;
  const size_t rows = side.rows ? side.rows : side.y + extent.height;
  if (extent.depth > 1 && rows < side.y + extent.height) return CUDA_ERROR_INVALID_VALUE;
  end.pitch = side.pitch ? side.pitch : row;
  end.rows = rows;
  uint64_t start = 0;
  switch (side.type) {
    case CU_MEMORYTYPE_HOST: start = reinterpret_cast<uint64_t>(side.host); break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED: start = side.device; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (start == 0) return CUDA_ERROR_INVALID_VALUE;
  end.address = start + (side.z * rows + side.y) * end.pitch + side.x;
  if (side.type == CU_MEMORYTYPE_DEVICE && call.remote().memory.wasFreed(end.address)) return CUDA_ERROR_INVALID_VALUE;
  const auto run = call.remote().memory.find(end.address);
  const bool isReachable = run && run->kind != MemoryKind::kPinnedLocal;
  end.isOwn = side.type == CU_MEMORYTYPE_DEVICE ? run && !isReachable : !isReachable;
  return CUDA_SUCCESS;
}

/// Whether the rows are adjacent at both ends.
inline bool isOneRun(const End& to, const End& from, const Extent& extent) {
  return !to.array && !from.array && to.pitch == extent.width && from.pitch == extent.width &&
         (extent.depth == 1 || (to.rows == extent.height && from.rows == extent.height));
}

}  // namespace millpond::client::api
