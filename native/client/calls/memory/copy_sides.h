// SPDX-License-Identifier: Apache-2.0
// The two sides of a copy in two or three dimensions, as the program describes them.
#pragma once

#include <cstddef>

#include "cuda/gen/cuda_api.h"

namespace millpond::client::api {

struct Extent {
  size_t width = 0;  ///< bytes
  size_t height = 1;
  size_t depth = 1;
};

/// The driver's structures have the same members for both ends, and for the ordinary and the peer call.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z, pitch, rows, lod;
};
template <typename T>
Side sourceOf(const T& c) {
  return {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray,  c.srcXInBytes,
          c.srcY,          c.srcZ,    c.srcPitch,  c.srcHeight, c.srcLOD};
}
template <typename T>
Side destinationOf(const T& c) {
  return {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray,  c.dstXInBytes,
          c.dstY,          c.dstZ,    c.dstPitch,  c.dstHeight, c.dstLOD};
}

/// The structure that describes both.
inline CUDA_MEMCPY3D boxOf(const Side& dst, const Side& src, const Extent& extent) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = src.type;
  copy.srcHost = src.host;
  copy.srcDevice = src.device;
  copy.srcArray = src.array;
  copy.srcXInBytes = src.x;
  copy.srcY = src.y;
  copy.srcZ = src.z;
  copy.srcPitch = src.pitch;
  copy.srcHeight = src.rows;
  copy.dstMemoryType = dst.type;
  copy.dstHost = const_cast<void*>(dst.host);
  copy.dstDevice = dst.device;
  copy.dstArray = dst.array;
  copy.dstXInBytes = dst.x;
  copy.dstY = dst.y;
  copy.dstZ = dst.z;
  copy.dstPitch = dst.pitch;
  copy.dstHeight = dst.rows;
  copy.WidthInBytes = extent.width;
  copy.Height = extent.height;
  copy.Depth = extent.depth;
  return copy;
}

}  // namespace millpond::client::api
