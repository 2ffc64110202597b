// SPDX-License-Identifier: Apache-2.0
// Entry points: contexts, the thread's stack of them, primary contexts.
#include <bit>

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/capture.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

bool areContextFlags(unsigned flags) {
  return !(flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) && std::popcount(flags & CU_CTX_SCHED_MASK) <= 1;
}

CUresult createContext(CUcontext* pctx, unsigned flags, CUdevice dev) {
  return withDevice(dev, [&](Driver& driver, Device& device) -> CUresult {
    if (!pctx || !areContextFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (device.isLost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    auto context = std::make_shared<Context>(device, Context::Kind::created, flags);
    if (!context->ownMemory().takeContext()) return CUDA_ERROR_OUT_OF_MEMORY;
    *pctx = driver.contexts().add(context);
    pushCurrent({std::move(context)});
    return CUDA_SUCCESS;
  });
}

// A call about a context that is given by its handle, or the current one for null.
template <typename Body>
CUresult withGivenContext(CUcontext handle, Body body) {
  return withDriver([&](Driver& driver) -> CUresult {
    const ContextPtr context = handle ? driver.findCurrent(handle).context : currentContext();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    return body(driver, context);
  });
}

// A call about a context that is given by its handle, and an event.
template <typename Body>
CUresult withEventOf(CUcontext handle, CUevent eventHandle, Body body) {
  return withDriver([&](Driver& driver) -> CUresult {
    const ContextPtr context = driver.findCurrent(handle).context;
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (CUresult result = checkAlive(context)) return result;
    if (CUresult fault = context->fault()) return fault;
    const std::shared_ptr<Event> event = driver.events().find(eventHandle);
    return event ? body(context, *event) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return withDevice(dev, [&](Driver& driver, Device& device) -> CUresult {
    if (!pctx) return CUDA_ERROR_INVALID_VALUE;
    if (device.isLost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    const ContextPtr context = driver.retainPrimary(device);
    if (!context) return CUDA_ERROR_OUT_OF_MEMORY;
    *pctx = context->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return withDevice(dev, [](Driver& driver, Device& device) { return driver.releasePrimary(device); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return withDevice(dev, [](Driver& driver, Device& device) {
    driver.resetPrimary(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return withDevice(dev, [&](Driver&, Device& device) -> CUresult {
    if (!areContextFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
    device.primaryContext()->setFlags(flags);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return withDevice(dev, [&](Driver&, Device& device) -> CUresult {
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    *flags = device.primaryContext()->flags();
    *active = device.primaryContext()->state() == Context::State::alive ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) { return createContext(pctx, flags, dev); }

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) {
  if (paramsArray || numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return createContext(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags, CUdevice dev) {
  if (ctxCreateParams && ctxCreateParams->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (ctxCreateParams && ctxCreateParams->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
  return createContext(pctx, flags, dev);
}

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) { return createContext(pctx, flags, dev); }

CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return withDriver([&](Driver& driver) -> CUresult {
    const ContextPtr context = driver.contexts().find(ctx);
    if (!context || context->kind() == Context::Kind::primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (!driver.contexts().remove(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    driver.destroyContext(context);
    if (currentContext() == context) popCurrent();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  return withDriver([&](Driver& driver) -> CUresult {
    Current wanted = driver.findCurrent(ctx);
    if (ctx && !wanted.context) return CUDA_ERROR_INVALID_CONTEXT;
    setCurrent(std::move(wanted));
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  return withDriver([&](Driver&) -> CUresult {
    if (!pctx) return CUDA_ERROR_INVALID_VALUE;
    *pctx = current().handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return withDriver([&](Driver& driver) -> CUresult {
    Current wanted = driver.findCurrent(ctx);
    if (!wanted.context) return CUDA_ERROR_INVALID_CONTEXT;
    pushCurrent(std::move(wanted));
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  return withDriver([&](Driver&) -> CUresult {
    const Current popped = popCurrent();
    if (!popped.context) return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx) *pctx = popped.handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  return withGivenContext(ctx, [&](Driver&, const ContextPtr& context) -> CUresult {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = static_cast<CUdevice>(context->device().ordinal());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  return withDriver([&](Driver& driver) -> CUresult {
    const Current wanted = ctx ? driver.findCurrent(ctx) : current();
    if (!wanted.context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctxId) return CUDA_ERROR_INVALID_VALUE;
    const GreenPtr green = wanted.green ? driver.greens().find(wanted.green) : nullptr;
    *ctxId = green ? green->id() : wanted.context->id();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  return withGivenContext(ctx, [&](Driver&, const ContextPtr&) -> CUresult {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return withContext([&](Driver&, const ContextPtr& context) -> CUresult {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags() | (context->kind() == Context::Kind::primary ? unsigned{CU_CTX_MAP_HOST} : 0u);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return withContext([&](Driver&, const ContextPtr& context) -> CUresult {
    if (!areContextFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
    context->setFlags(flags);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return withEventOf(hCtx, hEvent, [](const ContextPtr& context, Event& event) -> CUresult {
    if (event.context() != context) return CUDA_ERROR_INVALID_HANDLE;
    const QueuePtr queue = context->queueBehindAll();
    event.record(queue);
    context->retireQueue(queue);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return withEventOf(hCtx, hEvent, [](const ContextPtr& context, Event& event) -> CUresult {
    context->enqueueWaitEverywhere(event.point());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType) {
  return withContext([&](Driver&, const ContextPtr&) -> CUresult {
    return pExecAffinity ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuCtxSynchronize(void) { return cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return withGivenContext(ctx, [&](Driver&, const ContextPtr& context) -> CUresult {
    if (CUresult result = checkAlive(context)) return result;
    if (CUresult result = checkContextWait(*context)) return result;
    return context->synchronize();
  });
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  return withContext([&](Driver&, const ContextPtr& context) -> CUresult {
    if (!pvalue) return CUDA_ERROR_INVALID_VALUE;
    return context->limit(limit, pvalue);
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return withContext([&](Driver&, const ContextPtr& context) -> CUresult {
    if (CUresult result = checkUnsafeCall()) return result;
    return context->setLimit(limit, value);
  });
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return withContext([&](Driver&, const ContextPtr&) -> CUresult {
    if (leastPriority) *leastPriority = 0;
    if (greatestPriority) *greatestPriority = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

// Caches and shared memory need no configuration here: programs' preferences are accepted, and queries return one
// value.

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  return withContext([&](Driver&, const ContextPtr&) -> CUresult {
    if (!pconfig) return CUDA_ERROR_INVALID_VALUE;
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  return withContext([&](Driver&, const ContextPtr&) -> CUresult {
    if (!pConfig) return CUDA_ERROR_INVALID_VALUE;
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_SUCCESS; });
}

CUresult cuCtxResetPersistingL2Cache(void) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_SUCCESS; });
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!driver.contexts().find(peerContext)) return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    if (!driver.contexts().find(peerContext)) return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

}  // extern "C"
