// SPDX-License-Identifier: Apache-2.0
// Notifications of a device. They report that a process exceeds its memory, and the limit of a claim is never set below
// its use, so none is ever sent.
#include <map>
#include <mutex>

#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

/// Registered callbacks, by handle.
class Subscribers {
 public:
  static Subscribers& instance() {
    static auto& one = *new Subscribers();
    return one;
  }
  CUasyncCallbackHandle add(CUdevice device) {
    std::lock_guard lock(mutex_);
    // The handle looks like a pointer.
    last_ += sizeof(void*);
    devices_[last_] = device;
    return reinterpret_cast<CUasyncCallbackHandle>(last_);
  }
  bool remove(CUdevice device, CUasyncCallbackHandle handle) {
    std::lock_guard lock(mutex_);
    const auto found = devices_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == devices_.end() || found->second != device) return false;
    devices_.erase(found);
    return true;
  }

 private:
  std::mutex mutex_;
  uintptr_t last_ = 0;
  std::map<uintptr_t, CUdevice> devices_;
};

CUresult checkDevice(CUdevice device) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  return Client::instance().device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc, void*,
                                           CUasyncCallbackHandle* callback) noexcept {
  if (const CUresult r = checkDevice(device); r != CUDA_SUCCESS) return r;
  if (callbackFunc == nullptr || callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *callback = Subscribers::instance().add(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle callback) noexcept {
  if (const CUresult r = checkDevice(device); r != CUDA_SUCCESS) return r;
  return Subscribers::instance().remove(device, callback) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace millpond::client::api
