// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/streams/resolve.h"

#include "softgpu/driver/graphs/capture.h"

namespace millpond::softgpu {

CUresult resolveStream(CUstream handle, const ContextPtr& current, const HandleTable<Stream, CUstream>& streams,
                       StreamTarget* target) {
  if (!handle || handle == CU_STREAM_LEGACY) {
    if (CUresult result = checkLegacy(*current, true)) return result;
    *target = {current, current->legacyQueue()};
  } else if (handle == CU_STREAM_PER_THREAD) {
    *target = {current, current->threadQueue()};
  } else {
    const std::shared_ptr<Stream> stream = streams.find(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *target = {stream->context(), stream->queue()};
  }
  if (target->context->state() != Context::State::alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return target->context->fault();
}

}  // namespace millpond::softgpu
