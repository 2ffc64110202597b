// SPDX-License-Identifier: Apache-2.0
#include "client/call/preconditions.h"

#include "client/process/client.h"
#include "client/state/capture_state.h"
#include "client/state/context.h"

namespace millpond::client::precondition {

CUresult eventAnswer(Call& call, CUevent event) {
  if (!CaptureState::anyOpen()) return CUDA_SUCCESS;
  cmd::EventQuery wire{};
  wire.hEvent = reinterpret_cast<uint64_t>(event);
  cmd::EventQueryReply reply{};
  const CUresult state = call.wait(wire, reply);
  if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) return state;
  return CaptureState::checkUnsafe(call.session(), call.thread());
}

void awaitIfShared(Call& call, CUevent event) {
  const HandleTable::Slot* slot = call.remote().handles.find(HandleKind::kEvent, event);
  if (slot && (slot->traits.flags & CU_EVENT_INTERPROCESS)) call.waitForResult();
}

CUresult ownEvent(Call& call, CUevent event, CUstream stream) {
  const HandleTable::Slot* recorded = call.remote().handles.find(HandleKind::kEvent, event);
  const HandleTable::Slot* in = call.remote().handles.find(HandleKind::kStream, stream);
  if (!recorded) return CUDA_ERROR_INVALID_HANDLE;
  const Context* place = contextOf(in ? in->context : call.currentContext());
  return place && recorded->context == place->home() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult streamAnswer(Call& call, CUstream) {
  if (!CaptureState::anyOpen()) return CUDA_SUCCESS;
  if (call.namesLegacy())
    if (const CUresult r = CaptureState::checkLegacy(call.session(), call.thread(), call.currentContext());
        r != CUDA_SUCCESS)
      return r;
  return CaptureState::checkUnsafe(call.session(), call.thread());
}

CUresult uncaptured(Call& call, uint64_t stream) {
  if (!CaptureState::anyOpen()) return CUDA_SUCCESS;
  bool captured = false;
  if (const CUresult r = call.isCaptured(stream, captured); r != CUDA_SUCCESS) return r;
  return captured ? CUDA_SUCCESS : CaptureState::checkUnsafe(call.session(), call.thread());
}

CUresult copy(Call& call, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  const MemoryMap& memory = call.remote().memory;
  if (!memory.mayUse(to, bytes) || !memory.mayUse(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  // The worker decides about other memory, and this call must return its result.
  if (!memory.covers(to, bytes) || !memory.covers(from, bytes)) call.waitForResult();
  return CUDA_SUCCESS;
}

void wordAt(Call& call, CUdeviceptr at, size_t bytes) {
  if (at % bytes != 0 || !call.remote().memory.find(at, bytes)) call.waitForResult();
}

void awaitIfSeen(Call& call, CUdeviceptr to) {
  if (const auto run = call.remote().memory.find(to); run && run->kind != MemoryKind::kDevice) call.waitForWork();
}

CUresult memsetRange(Call& call, CUdeviceptr to, size_t bytes, size_t unit) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (to == 0 || to % unit != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!call.remote().memory.mayUse(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!call.remote().memory.covers(to, bytes)) call.waitForResult();
  return CUDA_SUCCESS;
}

CUresult memsetRows(Call& call, CUdeviceptr to, size_t pitch, size_t width, size_t height, size_t unit) {
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (height > 1 && (pitch < width || pitch % unit != 0)) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = 0;
  if (__builtin_mul_overflow(pitch, height - 1, &bytes) || __builtin_add_overflow(bytes, width, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return memsetRange(call, to, bytes, unit);
}

CUresult isNotOfModule(Call& call, CUtexref reference) {
  const HandleTable::Slot* slot = call.remote().handles.find(HandleKind::kTextureReference, reference);
  if (!slot) return CUDA_ERROR_INVALID_HANDLE;
  return slot->function ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace millpond::client::precondition
