// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/contexts/green_contexts.h"

#include <algorithm>
#include <cstring>

namespace millpond::worker {
namespace {

/// More than any program splits devices into.
constexpr size_t kMaxResources = 1024;
constexpr size_t kMaxDescriptors = 1024;
constexpr uint32_t kMaxGroups = 256;

CUdevResource resourceIn(const std::byte* bytes) {
  CUdevResource resource;
  std::memcpy(&resource, bytes, sizeof resource);
  return resource;
}

}  // namespace

static_assert(sizeof(CUdevResource) == sizeof(cmd::DeviceResourceReply::resource));

bool GreenContexts::isKnown(const CUdevResource& resource) const {
  return std::any_of(resources_.begin(), resources_.end(),
                     [&](const CUdevResource& each) { return std::memcmp(&each, &resource, sizeof resource) == 0; });
}

CUresult GreenContexts::know(const CUdevResource& resource) {
  if (isKnown(resource)) return CUDA_SUCCESS;
  if (resources_.size() >= kMaxResources) return CUDA_ERROR_OUT_OF_MEMORY;
  resources_.push_back(resource);
  return CUDA_SUCCESS;
}

CUresult GreenContexts::onDeviceResource(const cmd::Decoded<cmd::DeviceResource>& command) {
  CUdevice device = 0;
  const bool isOfContext = command.fixed.device == -1;
  if (!isOfContext && !this->device(command.fixed.device, device))
    return violation("a resource of no device of the session");
  if (command.fixed.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  CUdevResource resource{};
  CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
  if (!isOfContext) {
    if (driver_.cuDeviceGetDevResource) rc = driver_.cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM);
  } else if (contexts_.bound() && contexts_.at(contexts_.bound()).green) {
    rc = driver_.cuGreenCtxGetDevResource(contexts_.at(contexts_.bound()).green, &resource, CU_DEV_RESOURCE_TYPE_SM);
  } else if (contexts_.bound() && driver_.cuCtxGetDevResource) {
    rc = driver_.cuCtxGetDevResource(contexts_.at(contexts_.bound()).handle, &resource, CU_DEV_RESOURCE_TYPE_SM);
  }
  if (rc || (rc = know(resource))) return rc;
  cmd::DeviceResourceReply answer{};
  std::memcpy(answer.resource, &resource, sizeof resource);
  reply(answer);
  return CUDA_SUCCESS;
}

CUresult GreenContexts::onResourceSplit(const cmd::Decoded<cmd::ResourceSplit>& command) {
  if (!driver_.cuDevSmResourceSplitByCount) return CUDA_ERROR_NOT_SUPPORTED;
  const CUdevResource input = resourceIn(reinterpret_cast<const std::byte*>(command.fixed.input));
  if (!isKnown(input)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  unsigned groups = std::min(command.fixed.groups, kMaxGroups);
  std::vector<CUdevResource> result(groups);
  CUdevResource remaining{};
  const bool isCounted = groups == 0;
  if (CUresult rc = driver_.cuDevSmResourceSplitByCount(isCounted ? nullptr : result.data(), &groups, &input,
                                                        isCounted ? nullptr : &remaining, command.fixed.flags,
                                                        command.fixed.minimum))
    return rc;
  cmd::ResourceSplitReply answer{};
  answer.groups = groups;
  if (isCounted) {
    reply(answer, std::span<const std::byte>{});
    return CUDA_SUCCESS;
  }
  result.resize(std::min<size_t>(groups, result.size()));
  for (const CUdevResource& each : result)
    if (CUresult rc = know(each)) return rc;
  if (CUresult rc = know(remaining)) return rc;
  std::memcpy(answer.remaining, &remaining, sizeof remaining);
  reply(answer, std::as_bytes(std::span(result)));
  return CUDA_SUCCESS;
}

CUresult GreenContexts::onResourceDescribe(const cmd::Decoded<cmd::ResourceDescribe>& command) {
  if (!driver_.cuDevResourceGenerateDesc) return CUDA_ERROR_NOT_SUPPORTED;
  const auto bytes = command.tail[0];
  if (bytes.empty() || bytes.size() % sizeof(CUdevResource)) return violation("resources of an odd length");
  if (descriptors_.contains(command.fixed.descriptor)) return violation("there is a descriptor of this number already");
  if (descriptors_.size() >= kMaxDescriptors) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<CUdevResource> resources;
  for (size_t at = 0; at < bytes.size(); at += sizeof(CUdevResource)) {
    resources.push_back(resourceIn(bytes.data() + at));
    if (!isKnown(resources.back())) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  CUdevResourceDesc descriptor = nullptr;
  if (CUresult rc =
          driver_.cuDevResourceGenerateDesc(&descriptor, resources.data(), static_cast<unsigned>(resources.size())))
    return rc;
  descriptors_.emplace(command.fixed.descriptor, descriptor);
  return CUDA_SUCCESS;
}

CUresult GreenContexts::onGreenCreate(const cmd::Decoded<cmd::GreenCreate>& command) {
  const auto& create = command.fixed;
  CUdevice device = 0;
  if (!this->device(create.device, device)) return violation("a context on no device of the session");
  if (CUresult rc = admitContext(session_, create.context)) return rc;
  const auto descriptor = descriptors_.find(create.descriptor);
  if (descriptor == descriptors_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGreenCtxCreate || !driver_.cuCtxFromGreenCtx) return CUDA_ERROR_NOT_SUPPORTED;
  if (!counts_.take(Thing::kContext, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgreenCtx green = nullptr;
  const auto make = [&] { return driver_.cuGreenCtxCreate(&green, descriptor->second, device, create.flags); };
  const auto primary = static_cast<uint16_t>(create.device + 1);
  const DriverCosts& costs = charges_.costs(static_cast<size_t>(create.device));
  const CUresult rc = costs.any() ? charges_.measured(DriverMemory::Of::kContext, create.context, primary,
                                                      costs.context, make, [&] { driver_.cuGreenCtxDestroy(green); })
                                  : make();
  if (rc) {
    counts_.countContexts();
    return rc;
  }
  Context made;
  made.device = static_cast<uint16_t>(create.device);
  made.used = true;
  if (CUresult failed = driver_.cuCtxFromGreenCtx(&made.handle, green)) {
    driver_.cuGreenCtxDestroy(green);
    charges_.dropContext(create.context);
    counts_.countContexts();
    return failed;
  }
  made.green = green;
  contexts_.at(create.context) = std::move(made);
  return CUDA_SUCCESS;
}

CUresult GreenContexts::onGreenStream(const cmd::Decoded<cmd::GreenStream>& command) {
  const CUgreenCtx green = contexts_.bound() ? contexts_.at(contexts_.bound()).green : nullptr;
  if (!green) return violation("the context is not a green context");
  CUstream stream = nullptr;
  CUresult rc = objects_.admit(HandleKind::kStream);
  if (!rc) rc = driver_.cuGreenCtxStreamCreate(&stream, green, command.fixed.flags, command.fixed.priority);
  if (!objects_.adopt(HandleKind::kStream, command.fixed.stream, rc ? nullptr : stream))
    return violation("a stream of this number is in use already");
  return rc;
}

}  // namespace millpond::worker
