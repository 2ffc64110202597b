// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/driver.h"

#include <pthread.h>

#include "softgpu/driver/host/configuration.h"
#include "softgpu/driver/host/log.h"
#include "softgpu/driver/host/pages.h"

namespace millpond::softgpu {
namespace {

// True in a child of a process whose driver was ready.
std::atomic<bool> isForked = false;

}  // namespace

Driver& Driver::instance() {
  static Driver* const driver = std::make_unique<Driver>().release();
  return *driver;
}

CUresult Driver::initialise() {
  if (isReady_) return ready();
  std::lock_guard lock(mutex_);
  if (isReady_) return ready();
  if (CUresult result = openDevices()) return result;
  if (::pthread_atfork(nullptr, nullptr, [] { isForked = true; }) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  isReady_ = true;
  return CUDA_SUCCESS;
}

CUresult Driver::openDevices() {
  Result<Configuration> configuration = readConfiguration();
  if (!configuration) {
    log(LogLevel::error, configuration.error().message);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (configuration->devices == 0) return CUDA_ERROR_NO_DEVICE;
  Status directory = makeStateDirectory(configuration->stateDirectory);
  if (!directory) {
    log(LogLevel::error, directory.error().message);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  std::vector<std::unique_ptr<Device>> devices;
  for (unsigned ordinal = 0; ordinal < configuration->devices; ++ordinal) {
    Result<std::unique_ptr<Device>> device = Device::open(ordinal, *configuration, dispatcher_);
    if (!device) {
      log(LogLevel::error, device.error().message);
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    (*device)->setPrimaryContext(std::make_shared<Context>(**device, Context::Kind::primary, 0));
    devices.push_back(std::move(*device));
  }
  for (const std::unique_ptr<Device>& device : devices) contexts_.add(device->primaryContext());
  devices_ = std::move(devices);
  dispatcher_.setQueueDepth(configuration->queueDepth);
  if (configuration->chaos) dispatcher_.disorder(*configuration->chaos);
  Sanitizer::start(*configuration);
  DeviceMemory::instance().open(devices_, sanitizer() ? kPageBytes : 0);
  return CUDA_SUCCESS;
}

CUresult Driver::ready() const {
  if (!isReady_.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  // The threads and locks of the parent do not exist in a child.
  if (isForked) return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

Device* Driver::device(int ordinal) const {
  if (ordinal < 0 || ordinal >= deviceCount()) return nullptr;
  return devices_[static_cast<size_t>(ordinal)].get();
}

Current Driver::findCurrent(CUcontext handle) const {
  if (ContextPtr context = contexts_.find(handle)) return {std::move(context)};
  const GreenPtr green = greens_.find(reinterpret_cast<CUgreenCtx>(handle));
  return green ? Current{green->primary(), green->handle()} : Current{};
}

void Driver::forgetContents(const Module& module) {
  functions_.removeIf([&](const Function& function) { return &function.module() == &module; });
  const auto isItsOwn = [&](const TextureReference& reference) { return reference.module() == &module; };
  textureReferences().removeIf(isItsOwn);
  surfaceReferences().removeIf(isItsOwn);
}

void Driver::destroyContext(const ContextPtr& context) {
  const uint64_t id = context->id();
  context->destroy();
  const auto isOwned = [&](const auto& object) { return object.contextId() == id; };
  streams_.removeIf(isOwned);
  events_.removeIf(isOwned);
  for (const std::shared_ptr<Library>& library : libraries_.all()) library->dropInstance(id);
  functions_.removeIf(isOwned);
  textureReferences().removeIf(isOwned);
  surfaceReferences().removeIf(isOwned);
  modules_.removeIf(isOwned);
  textures().removeOwnedBy(id);
  memory().releaseOwnedBy(id);
}

ContextPtr Driver::retainPrimary(Device& device) {
  std::lock_guard lock(primaryMutex_);
  if (!device.primaryContext()->activate()) return nullptr;
  ++primaryReferences_[device.ordinal()];
  return device.primaryContext();
}

CUresult Driver::releasePrimary(Device& device) {
  std::lock_guard lock(primaryMutex_);
  unsigned& references = primaryReferences_[device.ordinal()];
  if (references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--references == 0) destroyContext(device.primaryContext());
  return CUDA_SUCCESS;
}

void Driver::resetPrimary(Device& device) {
  std::lock_guard lock(primaryMutex_);
  primaryReferences_[device.ordinal()] = 0;
  if (device.primaryContext()->state() == Context::State::alive) destroyContext(device.primaryContext());
}

}  // namespace millpond::softgpu
