// SPDX-License-Identifier: Apache-2.0
// Entry points: parts of a device, and contexts that have them.
#include <cstring>

#include "softgpu/driver/api/api.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

/// The value that this driver stores in the opaque part of a resource.
struct Secrets {
  uint64_t magic = 0x6e65657267756770;
  uint32_t device = 0;
  uint32_t isPart = 0;
};

CUdevResource makeResource(unsigned device, unsigned count, bool isPart) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  const Secrets secrets{.device = device, .isPart = isPart};
  std::memcpy(resource._internal_padding, &secrets, sizeof secrets);
  resource.sm = {.smCount = count, .minSmPartitionSize = isPart ? 0u : 1u, .smCoscheduledAlignment = isPart ? 0u : 1u};
  return resource;
}

bool readSecrets(const CUdevResource& resource, Secrets& secrets) {
  std::memcpy(&secrets, resource._internal_padding, sizeof secrets);
  return resource.type == CU_DEV_RESOURCE_TYPE_SM && secrets.magic == Secrets{}.magic;
}

CUresult checkOut(const CUdevResource* resource, CUdevResourceType type) {
  if (!resource) return CUDA_ERROR_INVALID_VALUE;
  return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

template <typename Body>
CUresult withGreen(CUgreenCtx handle, Body body) {
  return withDriver([&](Driver& driver) -> CUresult {
    const GreenPtr green = driver.greens().find(handle);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    if (CUresult result = checkAlive(green->primary())) return result;
    return body(driver, *green);
  });
}

template <typename Body>
CUresult withGreenEvent(CUgreenCtx handle, CUevent eventHandle, Body body) {
  return withGreen(handle, [&](Driver& driver, GreenContext& green) -> CUresult {
    if (CUresult fault = green.primary()->fault()) return fault;
    const std::shared_ptr<Event> event = driver.events().find(eventHandle);
    return event ? body(green.primary()->handle(), eventHandle) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  return withDevice(device, [&](Driver&, Device& own) -> CUresult {
    if (CUresult result = checkOut(resource, type)) return result;
    *resource = makeResource(own.ordinal(), own.multiprocessors(), false);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  const GreenPtr green = Driver::instance().greens().find(reinterpret_cast<CUgreenCtx>(hCtx));
  if (green) return cuGreenCtxGetDevResource(green->handle(), resource, type);
  return withDriver([&](Driver& driver) -> CUresult {
    const ContextPtr context = driver.contexts().find(hCtx);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    return cuDeviceGetDevResource(static_cast<CUdevice>(context->device().ordinal()), resource, type);
  });
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource, CUdevResourceType type) {
  return withGreen(hCtx, [&](Driver&, GreenContext& green) -> CUresult {
    if (CUresult result = checkOut(resource, type)) return result;
    *resource = green.resource();
    return CUDA_SUCCESS;
  });
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int, unsigned int minCount) {
  return withDriver([&](Driver&) -> CUresult {
    if (!nbGroups || !input || (result && *nbGroups == 0)) return CUDA_ERROR_INVALID_VALUE;
    Secrets secrets;
    const unsigned size = std::max(minCount, 1u);
    if (!readSecrets(*input, secrets) || secrets.isPart || size > input->sm.smCount)
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    const unsigned most = input->sm.smCount / size;
    const unsigned groups = result ? std::min(*nbGroups, most) : most;
    for (unsigned i = 0; result && i < groups; ++i) result[i] = makeResource(secrets.device, size, true);
    if (remaining) *remaining = makeResource(secrets.device, input->sm.smCount - groups * size, true);
    *nbGroups = groups;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources, unsigned int nbResources) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!phDesc || !resources || nbResources == 0) return CUDA_ERROR_INVALID_VALUE;
    Secrets first;
    if (!readSecrets(resources[0], first)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned count = 0;
    for (unsigned i = 0; i < nbResources; ++i) {
      Secrets secrets;
      if (!readSecrets(resources[i], secrets) || secrets.device != first.device)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
      count += resources[i].sm.smCount;
    }
    *phDesc = driver.resourceDescriptions().add(
        std::make_shared<ResourceDescription>(ResourceDescription{makeResource(first.device, count, first.isPart)}));
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  return withDevice(dev, [&](Driver& driver, Device& device) -> CUresult {
    if (!phCtx || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<ResourceDescription> description = driver.resourceDescriptions().find(desc);
    Secrets secrets;
    if (!description || !readSecrets(description->resource, secrets)) return CUDA_ERROR_INVALID_VALUE;
    if (secrets.device != device.ordinal()) return CUDA_ERROR_INVALID_DEVICE;
    ContextPtr primary = driver.retainPrimary(device);
    if (!primary) return CUDA_ERROR_OUT_OF_MEMORY;
    *phCtx = driver.greens().add(std::make_shared<GreenContext>(std::move(primary), description->resource));
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  return withDriver([&](Driver& driver) -> CUresult {
    const GreenPtr green = driver.greens().remove(hCtx);
    return green ? driver.releasePrimary(green->primary()->device()) : CUDA_ERROR_INVALID_CONTEXT;
  });
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  return withGreen(hCtx, [&](Driver&, GreenContext& green) -> CUresult {
    if (!pContext) return CUDA_ERROR_INVALID_VALUE;
    *pContext = green.contextHandle();
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  return withGreen(greenCtx, [&](Driver&, GreenContext& green) -> CUresult {
    if (!greenCtxId) return CUDA_ERROR_INVALID_VALUE;
    *greenCtxId = green.id();
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return withGreenEvent(hCtx, hEvent, &cuCtxRecordEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) { return withGreenEvent(hCtx, hEvent, &cuCtxWaitEvent); }

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
  return withGreen(greenCtx, [&](Driver& driver, GreenContext& green) -> CUresult {
    if (!phStream || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    const int clamped = std::clamp(priority, kGreatestPriority, 0);
    const QueuePtr queue = green.primary()->createQueue(flags, clamped);
    queue->green = greenCtx;
    *phStream = driver.streams().add(std::make_shared<Stream>(green.primary(), queue));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!phCtx) return CUDA_ERROR_INVALID_VALUE;
    *phCtx = target.queue->green;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
