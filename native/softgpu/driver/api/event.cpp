// SPDX-License-Identifier: Apache-2.0
// Entry points: events.
#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/capture.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

template <typename Body>
CUresult withEvent(CUevent handle, Body body) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const std::shared_ptr<Event> event = driver.events().find(handle);
    return event ? body(driver, *event) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// A point in a capture is never reached, so it can be neither queried nor waited for.
CUresult checkEventAnswer(Event& event) {
  {
    std::lock_guard lock(graphMutex());
    if (event.capture) {
      event.capture.capture->isInvalid = true;
      return CUDA_ERROR_CAPTURED_EVENT;
    }
  }
  return checkUnsafeCall();
}

CUresult recordEvent(CUevent handle, CUstream stream, unsigned flags) {
  return withStream(stream, [&](Driver& driver, const StreamTarget& target) -> CUresult {
    if (flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<Event> event = driver.events().find(handle);
    if (!event || event->context() != target.context) return CUDA_ERROR_INVALID_HANDLE;
    bool captured = false;
    if (CUresult result = captureRecord(target, event, flags & CU_EVENT_RECORD_EXTERNAL, handle, &captured))
      return result;
    if (!captured) event->record(target.queue);
    return CUDA_SUCCESS;
  });
}

CUresult elapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<Event> from = driver.events().find(start);
    const std::shared_ptr<Event> to = driver.events().find(end);
    if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
    {
      std::lock_guard lock(graphMutex());
      if (from->capture || to->capture) return CUDA_ERROR_CAPTURED_EVENT;
    }
    return to->elapsedSince(*from, milliseconds);
  });
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!phEvent || (Flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<SharedEvent> shared;
    if (Flags & CU_EVENT_INTERPROCESS) {
      shared = SharedEvent::make();
      if (!shared) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phEvent = driver.events().add(std::make_shared<Event>(context, Flags, std::move(shared)));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    return driver.events().remove(hEvent) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) { return recordEvent(hEvent, hStream, 0); }

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return recordEvent(hEvent, hStream, flags);
}

CUresult cuEventQuery(CUevent hEvent) {
  return withEvent(hEvent, [](Driver&, Event& event) -> CUresult {
    if (CUresult result = checkEventAnswer(event)) return result;
    if (!event.isReached()) return CUDA_ERROR_NOT_READY;
    return event.context()->fault();
  });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return withEvent(hEvent, [](Driver& driver, Event& event) -> CUresult {
    if (CUresult result = checkEventAnswer(event)) return result;
    if (const OperationPtr point = event.point()) driver.dispatcher().wait(point);
    return event.context()->fault();
  });
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsedTime(pMilliseconds, hStart, hEnd);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsedTime(pMilliseconds, hStart, hEnd);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  return withEvent(event, [&](Driver&, Event& own) -> CUresult {
    if (!pHandle) return CUDA_ERROR_INVALID_VALUE;
    if (!own.shared() || !own.shared()->isOwn()) return CUDA_ERROR_INVALID_HANDLE;
    *pHandle = own.shared()->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!phEvent) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<SharedEvent> shared;
    if (CUresult result = SharedEvent::open(handle, &shared)) return result;
    constexpr unsigned flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    *phEvent = driver.events().add(std::make_shared<Event>(context, flags, std::move(shared)));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
