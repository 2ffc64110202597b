// SPDX-License-Identifier: Apache-2.0
// Entry points: streams and host functions.
#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/capture.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

CUresult createStream(CUstream* stream, unsigned flags, int priority) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!stream || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING))) return CUDA_ERROR_INVALID_VALUE;
    const int clamped = std::clamp(priority, kGreatestPriority, 0);
    const QueuePtr queue = context->createQueue(flags, clamped);
    queue->green = current().green;
    *stream = driver.streams().add(std::make_shared<Stream>(context, queue));
    return CUDA_SUCCESS;
  });
}

// A stream that is being captured must not be queried for these.
CUresult checkQuestion(const StreamTarget& target) {
  if (!isCapturing(target.queue)) return CUDA_SUCCESS;
  invalidateCapture(target.queue);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) { return createStream(phStream, Flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return createStream(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const std::shared_ptr<Stream> stream = driver.streams().remove(hStream);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    forgetQueue(stream->queue());
    stream->context()->retireQueue(stream->queue());
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamQuery(CUstream hStream) {
  return withStream(hStream, [](Driver&, const StreamTarget& target) -> CUresult {
    if (CUresult result = checkWait(target)) return result;
    if (!target.context->pendingOf(target.queue).empty()) return CUDA_ERROR_NOT_READY;
    return target.context->fault();
  });
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return withStream(hStream, [](Driver&, const StreamTarget& target) -> CUresult {
    if (CUresult result = checkWait(target)) return result;
    return target.context->synchronize(target.queue);
  });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return withStream(hStream, [&](Driver& driver, const StreamTarget& target) -> CUresult {
    if (Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<Event> event = driver.events().find(hEvent);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    bool captured = false;
    if (CUresult result = captureWait(target, event, Flags & CU_EVENT_WAIT_EXTERNAL, hEvent, &captured)) return result;
    if (!captured) target.context->enqueueWait(target.queue, event->point());
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!priority) return CUDA_ERROR_INVALID_VALUE;
    *priority = target.queue->priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (CUresult result = checkQuestion(target)) return result;
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = target.queue->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (CUresult result = checkQuestion(target)) return result;
    if (!streamId) return CUDA_ERROR_INVALID_VALUE;
    *streamId = target.queue->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!pctx) return CUDA_ERROR_INVALID_VALUE;
    *pctx = Current{target.context, target.queue->green}.handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (pGreenCtx) *pGreenCtx = target.queue->green;
    if (pCtx) *pCtx = target.context->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (CUresult result = checkQuestion(target)) return result;
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = static_cast<CUdevice>(target.context->device().ordinal());
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = checkWait(target)) return result;
    enqueueCallback(target, [=](CUresult status) { callback(hStream, status, userData); });
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!fn) return CUDA_ERROR_INVALID_VALUE;
    bool captured = false;
    if (CUresult result = captureWork(target, HostWork{fn, userData}, &captured)) return result;
    if (!captured) enqueueHostFunction(target, [=] { fn(userData); });
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
