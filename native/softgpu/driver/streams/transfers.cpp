// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/streams/transfers.h"

#include "softgpu/driver/graphs/capture.h"

namespace millpond::softgpu {
namespace {

/// The driver's structure for a copy that was requested by a call.
CUDA_MEMCPY3D paramsOf(const Copy& copy) {
  const auto type = [](Place place) {
    return place == Place::host     ? CU_MEMORYTYPE_HOST
           : place == Place::device ? CU_MEMORYTYPE_DEVICE
                                    : CU_MEMORYTYPE_UNIFIED;
  };
  const auto rows = [&](const CopyEnd& end) {
    return end.sliceStride && end.rowStride ? end.sliceStride / end.rowStride : copy.extent.height;
  };
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = type(copy.from.place);
  params.srcHost = reinterpret_cast<const void*>(copy.from.place == Place::host ? copy.from.address : 0);
  params.srcDevice = copy.from.place == Place::host ? 0 : copy.from.address;
  params.srcPitch = copy.from.rowStride ? copy.from.rowStride : copy.extent.width;
  params.srcHeight = rows(copy.from);
  params.dstMemoryType = type(copy.to.place);
  params.dstHost = reinterpret_cast<void*>(copy.to.place == Place::host ? copy.to.address : 0);
  params.dstDevice = copy.to.place == Place::host ? 0 : copy.to.address;
  params.dstPitch = copy.to.rowStride ? copy.to.rowStride : copy.extent.width;
  params.dstHeight = rows(copy.to);
  params.WidthInBytes = copy.extent.width;
  params.Height = copy.extent.height;
  params.Depth = copy.extent.depth;
  return params;
}

}  // namespace

CUresult enqueueCopy(const StreamTarget& stream, const Copy& copy, Return when) {
  if (copy.extent.isEmpty()) return CUDA_SUCCESS;
  CheckedCopy ends;
  if (CUresult result = checkCopy(copy, &ends)) return result;
  bool captured = false;
  if (CUresult result =
          captureWork(stream, CopyWork{paramsOf(copy), stream.context->handle(), stream.context, copy}, &captured))
    return result;
  return captured ? CUDA_SUCCESS : enqueueChecked(stream, ends, when);
}

CUresult enqueueFill(const StreamTarget& stream, const Fill& fill, Return when) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  CheckedFill target;
  if (CUresult result = checkFill(fill, &target)) return result;
  const CUDA_MEMSET_NODE_PARAMS params{fill.address,      fill.rowStride, fill.value,
                                       fill.elementBytes, fill.width,     fill.height};
  bool captured = false;
  if (CUresult result = captureWork(stream, FillWork{params, stream.context}, &captured)) return result;
  return captured ? CUDA_SUCCESS : enqueueChecked(stream, target, when);
}

}  // namespace millpond::softgpu
