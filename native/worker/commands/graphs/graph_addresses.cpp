// SPDX-License-Identifier: Apache-2.0
// Graph nodes that hold addresses, and batches of memory operations: checks that these belong to the session.
#include <cstddef>
#include <string>

#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

bool isHost(CUmemorytype type) { return type == CU_MEMORYTYPE_HOST; }

}  // namespace

CUresult Executor::readCopy(const graph::NodeRecord& record, NodeParams& out) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  using C = CUDA_MEMCPY3D;
  CUDA_MEMCPY3D copy = record.copy.numbers();
  const auto isPlain = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
  };
  if (!isPlain(copy.srcMemoryType) || !isPlain(copy.dstMemoryType)) return CUDA_ERROR_NOT_SUPPORTED;
  const bool toDevice = isHost(copy.srcMemoryType);
  if (toDevice && isHost(copy.dstMemoryType)) return CUDA_ERROR_NOT_SUPPORTED;
  const Box src{
      .address = toDevice ? record.copy.address<offsetof(C, srcHost)>() : record.copy.address<offsetof(C, srcDevice)>(),
      .pitch = copy.srcPitch,
      .rows = copy.srcHeight,
      .x = copy.srcXInBytes,
      .y = copy.srcY,
      .z = copy.srcZ,
      .width = copy.WidthInBytes,
      .height = copy.Height,
      .depth = copy.Depth};
  const Box dst{.address = isHost(copy.dstMemoryType) ? record.copy.address<offsetof(C, dstHost)>()
                                                      : record.copy.address<offsetof(C, dstDevice)>(),
                .pitch = copy.dstPitch,
                .rows = copy.dstHeight,
                .x = copy.dstXInBytes,
                .y = copy.dstY,
                .z = copy.dstZ,
                .width = copy.WidthInBytes,
                .height = copy.Height,
                .depth = copy.Depth};
  if (!src.extent() || !dst.extent()) return CUDA_ERROR_INVALID_VALUE;
  // Memory of type "host" belongs to the client unless both sides map it: the worker has a stage for it. All other
  // memory belongs to the session, or is invalid: the driver never has to classify an address.
  SessionRange from, to;
  const CUresult fromRc = addresses_.reach(src, from, true);
  const CUresult toRc = addresses_.reach(dst, to, true);
  const bool fromStage = toDevice && (fromRc || !from.isHost());
  const bool toStage = isHost(copy.dstMemoryType) && (toRc || !to.isHost());
  if (fromRc && !fromStage) return fromRc;
  if (toRc && !toStage) return toRc;
  if (fromStage || toStage)
    if (CUresult rc = graphStages_.make(fromStage ? src : dst, fromStage, record.copy.whole(), out.stage)) return rc;
  if (fromStage) {
    copy.srcHost = out.stage->memory;
    copy.srcXInBytes = copy.srcY = copy.srcZ = 0;
  } else {
    // The driver's offsets have the same base as the client's.
    const uint64_t begin = from.device() - src.extent()->offset;
    copy.srcMemoryType = from.isHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (from.isHost())
      copy.srcHost = reinterpret_cast<const void*>(begin);
    else
      copy.srcDevice = begin;
  }
  if (toStage) {
    copy.dstHost = out.stage->memory;
    copy.dstXInBytes = copy.dstY = copy.dstZ = 0;
  } else {
    const uint64_t begin = to.device() - dst.extent()->offset;
    copy.dstMemoryType = to.isHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (to.isHost())
      copy.dstHost = reinterpret_cast<void*>(begin);
    else
      copy.dstDevice = begin;
  }
  out.params.memcpy.copyCtx = contexts_.at(contexts_.bound()).handle;
  out.params.memcpy.copyParams = copy;
  return CUDA_SUCCESS;
}

CUresult Executor::readFill(const graph::NodeRecord& record, NodeParams& out) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  const CUDA_MEMSET_NODE_PARAMS fill = record.fill.numbers();
  Box box{.address = record.fill.address<offsetof(CUDA_MEMSET_NODE_PARAMS, dst)>(), .pitch = fill.pitch};
  box.height = fill.height;
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.elementSize}, &box.width)) return CUDA_ERROR_INVALID_VALUE;
  SessionRange range;
  if (CUresult rc = addresses_.reach(box, range, true)) return rc;
  out.params.memset = {range.device(),
                       fill.pitch,
                       fill.value,
                       fill.elementSize,
                       fill.width,
                       fill.height,
                       contexts_.at(contexts_.bound()).handle};
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
