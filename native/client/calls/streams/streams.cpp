// SPDX-License-Identifier: Apache-2.0
// Queries of streams, answered from the program's own calls.
#include <algorithm>
#include <cstring>

#include "client/call/call.h"
#include "client/call/preconditions.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/capture_state.h"

namespace millpond::client::api {
namespace {

/// The known properties of a stream, including default streams.
struct StreamView {
  Context* context = nullptr;
  HandleTraits traits;
  uint64_t id = 0;
};

/// Whether that query is allowed while the stream is captured.
enum class InCapture { kAllowed, kForbidden };

/// As on a card, the legacy stream cannot be queried in any way during a capture of a stream that waits for it.
CUresult checkCapture(Call& call, uint64_t stream, InCapture own) {
  if (!CaptureState::anyOpen()) return CUDA_SUCCESS;
  if (call.namesLegacy()) return CaptureState::checkLegacy(call.session(), call.thread(), call.currentContext());
  if (own == InCapture::kAllowed) return CUDA_SUCCESS;
  bool isCaptured = false;
  if (const CUresult r = call.isCaptured(stream, isCaptured); r != CUDA_SUCCESS || !isCaptured) return r;
  CaptureState::lose(stream, call.session(), call.thread());
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult look(const char* name, CUstream stream, Flavour flavour, StreamView& view,
              InCapture inCapture = InCapture::kAllowed) {
  Call call(name, Needs::kAny);
  uint64_t wire = 0;
  if (const CUresult r = call.stream(stream, flavour, wire); r != CUDA_SUCCESS) return r;
  if (const CUresult r = checkCapture(call, wire, inCapture); r != CUDA_SUCCESS) return r;
  view.context = contextOf(call.currentContext());
  view.id = 1;  // the legacy stream; other numbers are at least 1 << 12
  if (wire == 0) return CUDA_SUCCESS;
  const HandleTable::Slot* slot = call.remote().handles.find(wire);
  if (!slot) return CUDA_ERROR_INVALID_HANDLE;
  view.context = contextOf(slot->context);
  view.traits = slot->traits;
  view.id = wire;
  return CUDA_SUCCESS;
}

CUgreenCtx greenOf(Context& context) {
  return context.isGreen() ? reinterpret_cast<CUgreenCtx>(context.handle()) : nullptr;
}

bool isStreamAttribute(CUstreamAttrID id) {
  return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         id == CU_LAUNCH_ATTRIBUTE_PRIORITY || id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

}  // namespace

CUresult cuStreamGetCtx(Flavour flavour, CUstream hStream, CUcontext* pctx) noexcept {
  StreamView view;
  if (const CUresult r = look("cuStreamGetCtx", hStream, flavour, view); r != CUDA_SUCCESS) return r;
  if (pctx == nullptr || !view.context) return CUDA_ERROR_INVALID_VALUE;
  *pctx = view.context->handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(Flavour flavour, CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) noexcept {
  StreamView view;
  if (const CUresult r = look("cuStreamGetCtx_v2", hStream, flavour, view); r != CUDA_SUCCESS) return r;
  if (!view.context) return CUDA_ERROR_INVALID_VALUE;
  if (pGreenCtx) *pGreenCtx = greenOf(*view.context);
  // A green context is reported as its primary context here.
  Context* context = contextOf(view.context->home());
  if (pCtx) *pCtx = context ? context->handle() : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) noexcept {
  StreamView view;
  if (const CUresult r = look("cuStreamGetGreenCtx", hStream, Flavour::kLegacy, view); r != CUDA_SUCCESS) return r;
  if (phCtx == nullptr || !view.context) return CUDA_ERROR_INVALID_VALUE;
  *phCtx = greenOf(*view.context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(Flavour flavour, CUstream hStream, CUdevice* device) noexcept {
  StreamView view;
  if (const CUresult r = look("cuStreamGetDevice", hStream, flavour, view, InCapture::kForbidden); r != CUDA_SUCCESS)
    return r;
  if (device == nullptr || !view.context) return CUDA_ERROR_INVALID_VALUE;
  *device = view.context->device();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(Flavour flavour, CUstream hStream, unsigned int* flags) noexcept {
  StreamView view;
  if (const CUresult r = look("cuStreamGetFlags", hStream, flavour, view, InCapture::kForbidden); r != CUDA_SUCCESS)
    return r;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = view.traits.flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(Flavour flavour, CUstream hStream, unsigned long long* streamId) noexcept {
  StreamView view;
  if (const CUresult r = look("cuStreamGetId", hStream, flavour, view, InCapture::kForbidden); r != CUDA_SUCCESS)
    return r;
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *streamId = view.id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(Flavour flavour, CUstream hStream, int* priority) noexcept {
  StreamView view;
  if (const CUresult r = look("cuStreamGetPriority", hStream, flavour, view); r != CUDA_SUCCESS) return r;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const DeviceSnapshot* device = view.context ? Client::instance().device(view.context->device()) : nullptr;
  // Priorities outside of the device's range are moved to its nearest end, as the driver does.
  *priority = device ? std::clamp(view.traits.priority, device->greatestStreamPriority, device->leastStreamPriority)
                     : view.traits.priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(Flavour flavour, CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* value) noexcept {
  Call call("cuStreamSetAttribute", Needs::kAny);
  cmd::StreamSetAttribute wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  if (!value || !isStreamAttribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  wire.attribute = static_cast<uint32_t>(attr);
  static_assert(sizeof wire.value == sizeof *value);
  std::memcpy(wire.value, value, sizeof wire.value);
  // Only the driver knows the valid values of this attribute.
  call.waitForResult();
  const CUresult result = call.post(wire);
  if (result == CUDA_SUCCESS && attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
    if (HandleTable::Slot* slot = call.remote().handles.find(wire.stream)) slot->traits.priority = value->priority;
  return result;
}

CUresult cuStreamGetAttribute(Flavour flavour, CUstream hStream, CUstreamAttrID attr,
                              CUstreamAttrValue* value_out) noexcept {
  Call call("cuStreamGetAttribute", Needs::kAny);
  cmd::StreamGetAttribute wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  if (!value_out || !isStreamAttribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  wire.attribute = static_cast<uint32_t>(attr);
  cmd::StreamGetAttributeReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  std::memcpy(value_out, reply.value, sizeof reply.value);
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
