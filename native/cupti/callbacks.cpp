// SPDX-License-Identifier: Apache-2.0
// Entry points: results in words, subscribers, devices.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>

#include "cupti/collector.h"
#include "cupti/refusal.h"
#include "cupti/source.h"

#define EXPORT [[gnu::visibility("default")]] Result

using namespace millpond::profiler;

namespace {

constexpr uint32_t kDriverCalls = 1, kRuntimeCalls = 2, kResources = 3;
constexpr uint32_t kContextCreated = 1, kContextDestroyStarting = 2;

std::atomic<void*> subscriber{nullptr};

const char* const kResults[] = {
    "CUPTI_SUCCESS",
    "CUPTI_ERROR_INVALID_PARAMETER",
    "CUPTI_ERROR_INVALID_DEVICE",
    "CUPTI_ERROR_INVALID_CONTEXT",
    "CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID",
    "CUPTI_ERROR_INVALID_EVENT_ID",
    "CUPTI_ERROR_INVALID_EVENT_NAME",
    "CUPTI_ERROR_INVALID_OPERATION",
    "CUPTI_ERROR_OUT_OF_MEMORY",
    "CUPTI_ERROR_HARDWARE",
    "CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT",
    "CUPTI_ERROR_API_NOT_IMPLEMENTED",
    "CUPTI_ERROR_MAX_LIMIT_REACHED",
    "CUPTI_ERROR_NOT_READY",
    "CUPTI_ERROR_NOT_COMPATIBLE",
    "CUPTI_ERROR_NOT_INITIALIZED",
    "CUPTI_ERROR_INVALID_METRIC_ID",
    "CUPTI_ERROR_INVALID_METRIC_NAME",
    "CUPTI_ERROR_QUEUE_EMPTY",
    "CUPTI_ERROR_INVALID_HANDLE",
    "CUPTI_ERROR_INVALID_STREAM",
    "CUPTI_ERROR_INVALID_KIND",
    "CUPTI_ERROR_INVALID_EVENT_VALUE",
    "CUPTI_ERROR_DISABLED",
    "CUPTI_ERROR_INVALID_MODULE",
    "CUPTI_ERROR_INVALID_METRIC_VALUE",
    "CUPTI_ERROR_HARDWARE_BUSY",
    "CUPTI_ERROR_NOT_SUPPORTED",
};

const char* textOf(Result result) {
  if (result >= 0 && static_cast<size_t>(result) < std::size(kResults)) return kResults[result];
  if (result == kMultipleSubscribersNotSupported) return "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
  return result == kUnknown ? "CUPTI_ERROR_UNKNOWN" : nullptr;
}

Result text(Result result, const char** text) {
  if (!text) return kInvalidParameter;
  *text = textOf(result);
  return *text ? kSuccess : kInvalidParameter;
}

/// A function of the driver, with which this library is not linked: the driver is loaded before.
template <typename F>
F driver(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library ? reinterpret_cast<F>(::dlsym(library, name)) : nullptr;
}

}  // namespace

extern "C" {

EXPORT cuptiGetResultString(Result result, const char** into) { return text(result, into); }
EXPORT cuptiGetErrorMessage(Result result, const char** into) { return text(result, into); }

/// One at a time, as with NVIDIA's library. No callback is ever made: see cuptiEnableCallback.
EXPORT cuptiSubscribe(void** handle, void* callback, void*) {
  if (!handle || !callback) return kInvalidParameter;
  if (!activitySource()) return kNotInitialized;
  void* none = nullptr;
  if (!subscriber.compare_exchange_strong(none, callback)) return kMultipleSubscribersNotSupported;
  *handle = callback;
  return kSuccess;
}

EXPORT cuptiUnsubscribe(void* handle) {
  return handle && subscriber.compare_exchange_strong(handle, nullptr) ? kSuccess : kInvalidParameter;
}

/// PyTorch requests a callback for new contexts in order to start with the first one; it also starts without receiving
/// one, but not if the request fails. The request is accepted, and no callback follows; all others are refused.
EXPORT cuptiEnableCallback(uint32_t isWanted, void* handle, uint32_t domain, uint32_t id) {
  if (!handle || subscriber.load() != handle) return kInvalidParameter;
  if (!isWanted) return kSuccess;
  if (domain == kResources && (id == kContextCreated || id == kContextDestroyStarting)) return kSuccess;
  static std::atomic<bool> said{false};
  return refuse("cuptiEnableCallback", said);
}

EXPORT cuptiEnableDomain(uint32_t isWanted, void* handle, uint32_t) {
  if (!handle || subscriber.load() != handle) return kInvalidParameter;
  static std::atomic<bool> said{false};
  return isWanted ? refuse("cuptiEnableDomain", said) : kSuccess;
}

EXPORT cuptiEnableAllDomains(uint32_t isWanted, void* handle) {
  if (!handle || subscriber.load() != handle) return kInvalidParameter;
  static std::atomic<bool> said{false};
  return isWanted ? refuse("cuptiEnableAllDomains", said) : kSuccess;
}

EXPORT cuptiGetCallbackName(uint32_t domain, uint32_t id, const char** name) {
  if (!name) return kInvalidParameter;
  static std::atomic<bool> said{false};
  if (domain != kDriverCalls && domain != kRuntimeCalls)
    return refuse("cuptiGetCallbackName for another domain than the calls of driver and runtime", said);
  *name = (domain == kDriverCalls ? CallNames::ofDriver() : CallNames::ofRuntime()).nameOf(id);
  return *name ? kSuccess : kInvalidParameter;
}

EXPORT cuptiGetDeviceId(void* context, uint32_t* device) {
  if (!context || !device) return kInvalidParameter;
  const auto push = driver<int (*)(void*)>("cuCtxPushCurrent_v2");
  const auto pop = driver<int (*)(void**)>("cuCtxPopCurrent_v2");
  const auto get = driver<int (*)(int*)>("cuCtxGetDevice");
  if (!push || !pop || !get) return kNotInitialized;
  if (push(context) != 0) return kInvalidParameter;
  int number = 0;
  const int answer = get(&number);
  pop(nullptr);
  *device = static_cast<uint32_t>(number);
  return answer == 0 ? kSuccess : kUnknown;
}

/// There is nothing that must be released before the process ends: kinds are disabled, and the subscriber leaves.
EXPORT cuptiFinalize() {
  for (uint32_t kind = 1; kind < kKindCount; ++kind) Collector::instance().disable(kind);
  subscriber.store(nullptr);
  return kSuccess;
}

}  // extern "C"
