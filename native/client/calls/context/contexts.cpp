// SPDX-License-Identifier: Apache-2.0
// Contexts. The client tracks which exist and which is current, and sends the changes to the worker.
#include <span>

#include "base/log.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client {

namespace {

// The context that a call refers to: the named one, or the current one for nullptr.
struct ContextSubject {
  explicit ContextSubject(CUcontext handle = nullptr) : result(Client::check()) {
    if (result != CUDA_SUCCESS) return;
    context = handle ? Client::instance().contexts().find(handle) : CurrentContext::get();
    if (!context)
      result = CUDA_ERROR_INVALID_CONTEXT;
    else if (context->destroyed())
      result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  CUresult result;
  Context* context = nullptr;
};

// The primary context of a device.
struct Primary {
  explicit Primary(CUdevice device) : result(Client::check()) {
    if (result != CUDA_SUCCESS) return;
    context = Client::instance().contexts().primary(device);
    if (!context) result = CUDA_ERROR_INVALID_DEVICE;
  }
  CUresult result;
  Context* context = nullptr;
};

bool validFlags(unsigned flags) {
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 && (schedule & (schedule - 1)) == 0;
}

CUresult createContext(const char* name, CUcontext* out, std::span<const CUexecAffinityParam> affinity, unsigned flags,
                       CUdevice device) {
  const Primary primary(device);
  if (primary.result != CUDA_SUCCESS) return primary.result;
  if (!out || !validFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  ContextTable& contexts = Client::instance().contexts();
  Context* context = contexts.create(*primary.context, flags);
  if (!context) {
    log(LogLevel::Error, "over %u contexts at once are not supported", unsigned{wire::kContextLimit});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Call call(name, Call::Teardown{0});  // whatever the state of the current context
  cmd::ContextCreate wire{};
  wire.context = context->wireContext();
  wire.flags = flags;
  wire.device = context->sessionDevice();
  cmd::ContextCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply, std::as_bytes(affinity)); r != CUDA_SUCCESS) {
    contexts.discard(*context);
    return r;
  }
  contexts.activate(*context);
  CurrentContext::push(*context);
  *out = context->handle();
  return CUDA_SUCCESS;
}

template <typename Command>
CUresult withEvent(const char* name, CUcontext handle, CUevent event) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  const Context* context = handle ? Client::instance().contexts().find(handle) : nullptr;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Call call(name, Needs::kNothing);
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  call.useContext(context->wireContext());
  Command wire{};
  if (const CUresult r = call.handle(HandleKind::kEvent, event, wire.event); r != CUDA_SUCCESS) return r;
  return call.post(wire);
}

}  // namespace

namespace api {

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) noexcept {
  const Primary primary(dev);
  if (primary.result != CUDA_SUCCESS) return primary.result;
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  Client::instance().contexts().retain(*primary.context);
  *pctx = primary.context->handle();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) noexcept {
  const Primary primary(dev);
  if (primary.result != CUDA_SUCCESS) return primary.result;
  return Client::instance().contexts().release(*primary.context);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) noexcept {
  const Primary primary(dev);
  if (primary.result != CUDA_SUCCESS) return primary.result;
  Client::instance().contexts().reset(*primary.context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) noexcept {
  const Primary primary(dev);
  if (primary.result != CUDA_SUCCESS) return primary.result;
  if (!validFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  primary.context->setFlags(flags);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) noexcept {
  const Primary primary(dev);
  if (primary.result != CUDA_SUCCESS) return primary.result;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  *flags = primary.context->flags();
  *active = primary.context->active() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) noexcept {
  return createContext("cuCtxCreate_v2", pctx, {}, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) noexcept {
  if (numParams < 0 || (numParams > 0 && !paramsArray)) return CUDA_ERROR_INVALID_VALUE;
  return createContext("cuCtxCreate_v3", pctx, {paramsArray, static_cast<size_t>(numParams)}, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) noexcept {
  std::span<const CUexecAffinityParam> affinity;
  if (ctxCreateParams) {
    const CUctxCreateParams& params = *ctxCreateParams;
    if (params.numExecAffinityParams < 0 || (params.numExecAffinityParams > 0 && !params.execAffinityParams))
      return CUDA_ERROR_INVALID_VALUE;
    if (params.cigParams)
      return notRemoted("cuCtxCreate_v4 with CIG parameters", "they share work with a graphics API");
    affinity = {params.execAffinityParams, static_cast<size_t>(params.numExecAffinityParams)};
  }
  return createContext("cuCtxCreate_v4", pctx, affinity, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  Context* context = ctx ? Client::instance().contexts().find(ctx) : nullptr;
  if (!context || context->isGreen()) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult r = Client::instance().contexts().destroy(*context); r != CUDA_SUCCESS) return r;
  if (CurrentContext::get() == context) CurrentContext::pop();
  return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!pctx || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = Client::instance().contexts().attach(*subject.context); r != CUDA_SUCCESS) return r;
  *pctx = subject.context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (subject.context->handle() != ctx) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult r = Client::instance().contexts().detach(*subject.context); r != CUDA_SUCCESS) return r;
  if (subject.context->destroyed()) CurrentContext::pop();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  Context* current = CurrentContext::get();
  *pctx = current ? current->handle() : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) noexcept {
  if (!ctx) {
    if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
    CurrentContext::set(nullptr);
    return CUDA_SUCCESS;
  }
  const ContextSubject subject(ctx);
  if (subject.result == CUDA_SUCCESS) CurrentContext::set(subject.context);
  return subject.result;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  Context* context = ctx ? Client::instance().contexts().find(ctx) : nullptr;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  CurrentContext::push(*context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  Context* popped = CurrentContext::pop();
  if (!popped) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx) *pctx = popped->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) noexcept { return api::cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) noexcept {
  const ContextSubject subject(ctx);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = subject.context->device();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  // A primary context maps host memory, whatever was requested.
  const bool isPrimary = subject.context->kind() == Context::Kind::kPrimary || subject.context->isGreen();
  *flags = subject.context->flags() | (isPrimary ? unsigned{CU_CTX_MAP_HOST} : 0u);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!validFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  subject.context->setFlags(flags);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) noexcept {
  const ContextSubject subject(ctx);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;  // true of all contexts since CUDA 3.2
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) noexcept {
  const ContextSubject subject(ctx);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!ctxId) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t id = subject.context->id();
  if (id == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *ctxId = id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  const DeviceSnapshot& device = *Client::instance().device(subject.context->device());
  if (leastPriority) *leastPriority = device.leastStreamPriority;
  if (greatestPriority) *greatestPriority = device.greatestStreamPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!pconfig) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = subject.context->cacheConfig;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  Call call("cuCtxSetCacheConfig", Needs::kCurrent);
  cmd::ContextSetCacheConfig wire{};
  wire.config = config;
  const CUresult result = call.post(wire);
  if (result == CUDA_SUCCESS) subject.context->cacheConfig = config;
  return result;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!pConfig) return CUDA_ERROR_INVALID_VALUE;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) noexcept {
  const ContextSubject subject;
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Every device since Maxwell has four-byte banks, whatever is requested.
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) noexcept {
  const ContextSubject subject(ctx);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (subject.context == CurrentContext::get()) return api::cuCtxSynchronize();
  CurrentContext::push(*subject.context);
  const CUresult result = api::cuCtxSynchronize();
  CurrentContext::pop();
  return result;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) noexcept {
  return withEvent<cmd::ContextRecordEvent>("cuCtxRecordEvent", hCtx, hEvent);
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) noexcept {
  return withEvent<cmd::ContextWaitEvent>("cuCtxWaitEvent", hCtx, hEvent);
}

}  // namespace api
}  // namespace millpond::client
