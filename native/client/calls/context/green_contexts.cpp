// SPDX-License-Identifier: Apache-2.0
// Green contexts: each is a context of the client; its objects other than streams belong to the primary context.
#include <atomic>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

/// More groups than any device can be split into.
constexpr unsigned kMaxGroups = 256;

CUgreenCtx greenOf(Context& context) { return reinterpret_cast<CUgreenCtx>(context.handle()); }

/// The context behind the handle of a green context.
struct Green {
  explicit Green(CUgreenCtx handle) : result(Client::check()) {
    if (result != CUDA_SUCCESS) return;
    context = handle ? Client::instance().contexts().find(reinterpret_cast<CUcontext>(handle)) : nullptr;
    if (!context || !context->isGreen() || !context->active()) result = CUDA_ERROR_INVALID_CONTEXT;
  }
  CUresult result;
  Context* context = nullptr;
};

CUresult getResource(const char* name, uint16_t context, int32_t device, CUdevResource* out, CUdevResourceType type) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Call call(name, Call::Teardown{context});
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  cmd::DeviceResource wire{};
  wire.device = device;
  wire.type = static_cast<int32_t>(type);
  cmd::DeviceResourceReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  static_assert(sizeof *out == sizeof reply.resource);
  std::memcpy(out, reply.resource, sizeof *out);
  return CUDA_SUCCESS;
}

template <typename Command>
CUresult withEvent(const char* name, CUgreenCtx handle, CUevent event) {
  const Green green(handle);
  if (green.result != CUDA_SUCCESS) return green.result;
  Call call(name, Needs::kNothing);
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  call.useContext(green.context->wireContext());
  Command wire{};
  if (const CUresult r = call.handle(HandleKind::kEvent, event, wire.event); r != CUDA_SUCCESS) return r;
  return call.post(wire);
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  const Context* primary = Client::instance().contexts().primary(device);
  if (!primary) return CUDA_ERROR_INVALID_DEVICE;
  return getResource("cuDeviceGetDevResource", 0, primary->sessionDevice(), resource, type);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  const Context* context = hCtx ? Client::instance().contexts().find(hCtx) : nullptr;
  if (!context || !context->active()) return CUDA_ERROR_INVALID_CONTEXT;
  return getResource("cuCtxGetDevResource", context->wireContext(), -1, resource, type);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource, CUdevResourceType type) noexcept {
  const Green green(hCtx);
  if (green.result != CUDA_SUCCESS) return green.result;
  return getResource("cuGreenCtxGetDevResource", green.context->wireContext(), -1, resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int useFlags, unsigned int minCount) noexcept {
  if (nbGroups == nullptr || input == nullptr || (result != nullptr && *nbGroups == 0)) return CUDA_ERROR_INVALID_VALUE;
  Call call("cuDevSmResourceSplitByCount", Needs::kNothing);
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  cmd::ResourceSplit wire{};
  static_assert(sizeof *input == sizeof wire.input);
  std::memcpy(wire.input, input, sizeof *input);
  wire.groups = result ? std::min(*nbGroups, kMaxGroups) : 0;
  wire.flags = useFlags;
  wire.minimum = minCount;
  std::vector<std::byte> body;
  Session::Answer answer;
  answer.whole = &body;
  if (const CUresult r = call.waitFor(wire, answer); r != CUDA_SUCCESS) return r;
  cmd::Decoded<cmd::ResourceSplitReply> reply;
  if (!cmd::decode(std::span<const std::byte>(body), reply)) return CUDA_ERROR_UNKNOWN;
  const std::span<const std::byte> groups = reply.tail[0];
  if (result && (reply.fixed.groups > wire.groups || groups.size() != reply.fixed.groups * sizeof *result))
    return CUDA_ERROR_UNKNOWN;
  *nbGroups = reply.fixed.groups;
  if (result) std::memcpy(result, groups.data(), groups.size());
  if (result && remaining) std::memcpy(remaining, reply.fixed.remaining, sizeof *remaining);
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) noexcept {
  if (phDesc == nullptr || resources == nullptr || nbResources == 0 || nbResources > kMaxGroups)
    return CUDA_ERROR_INVALID_VALUE;
  Call call("cuDevResourceGenerateDesc", Needs::kNothing);
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  static std::atomic<uint64_t> last{0};
  cmd::ResourceDescribe wire{};
  wire.descriptor = ++last;
  Session::Answer answer;
  if (const CUresult r = call.waitFor(wire, answer, std::as_bytes(std::span(resources, nbResources)));
      r != CUDA_SUCCESS)
    return r;
  *phDesc = reinterpret_cast<CUdevResourceDesc>(wire.descriptor);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (phCtx == nullptr || desc == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  ContextTable& contexts = Client::instance().contexts();
  Context* primary = contexts.primary(dev);
  if (!primary) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = contexts.create(*primary, 0, true);
  if (!context) {
    log(LogLevel::Error, "over %u contexts at once are not supported", unsigned{wire::kContextLimit});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Call call("cuGreenCtxCreate", Call::Teardown{0});
  cmd::GreenCreate wire{};
  wire.context = context->wireContext();
  wire.device = context->sessionDevice();
  wire.descriptor = reinterpret_cast<uint64_t>(desc);
  wire.flags = flags;
  cmd::GreenCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) {
    contexts.discard(*context);
    return r;
  }
  contexts.activate(*context);
  // It is the primary one, which lives as long.
  contexts.retain(*primary);
  *phCtx = greenOf(*context);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) noexcept {
  const Green green(hCtx);
  if (green.result != CUDA_SUCCESS) return green.result;
  ContextTable& contexts = Client::instance().contexts();
  if (const CUresult r = contexts.destroy(*green.context); r != CUDA_SUCCESS) return r;
  return contexts.release(*contexts.primary(green.context->device()));
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) noexcept {
  const Green green(hCtx);
  if (green.result != CUDA_SUCCESS) return green.result;
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pContext = green.context->handle();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) noexcept {
  const Green green(greenCtx);
  if (green.result != CUDA_SUCCESS) return green.result;
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *greenCtxId = green.context->id();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) noexcept {
  return withEvent<cmd::ContextRecordEvent>("cuGreenCtxRecordEvent", hCtx, hEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) noexcept {
  return withEvent<cmd::ContextWaitEvent>("cuGreenCtxWaitEvent", hCtx, hEvent);
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) noexcept {
  const Green green(greenCtx);
  if (green.result != CUDA_SUCCESS) return green.result;
  if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Call call("cuGreenCtxStreamCreate", Needs::kNothing);
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  call.useContext(green.context->wireContext());
  cmd::GreenStream wire{};
  wire.flags = flags;
  wire.priority = priority;
  wire.stream = call.create(HandleKind::kStream, reinterpret_cast<void**>(phStream),
                            HandleTraits{.flags = flags, .priority = priority});
  return call.post(wire);
}

}  // namespace millpond::client::api
