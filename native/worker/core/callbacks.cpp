// SPDX-License-Identifier: Apache-2.0
#include "worker/core/callbacks.h"

#include <algorithm>

namespace millpond::worker {

void Callbacks::runAndWait(const Callback& callback, CUresult status, const void* node) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  const uint64_t number = ++last_;
  due_.push_back({number, callback, status, node});
  running_.insert(number);
  wake_();
  changed_.wait(lock, [&] { return closed_ || !running_.contains(number); });
}

void Callbacks::announce(const Callback& callback) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  due_.push_back({++last_, callback, CUDA_SUCCESS, nullptr});
  wake_();
}

std::optional<Callbacks::Due> Callbacks::take(uint16_t context) {
  std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(due_.begin(), due_.end(), [&](const Due& due) { return due.callback.context == context; });
  if (found == due_.end()) return std::nullopt;
  const Due due = *found;
  due_.erase(found);
  return due;
}

bool Callbacks::done(uint64_t number) {
  std::lock_guard lock(mutex_);
  if (running_.erase(number) == 0) return false;
  changed_.notify_all();
  return true;
}

size_t Callbacks::running() {
  std::lock_guard lock(mutex_);
  return running_.size();
}

void Callbacks::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  due_.clear();
  changed_.notify_all();
}

void HostCall::runOnce(void* self) {
  const std::unique_ptr<HostCall> call(static_cast<HostCall*>(self));
  call->callbacks->runAndWait(call->callback, CUDA_SUCCESS, nullptr);
}

void HostCall::runOnceWithStatus(CUstream, CUresult status, void* self) {
  const std::unique_ptr<HostCall> call(static_cast<HostCall*>(self));
  call->callbacks->runAndWait(call->callback, status, nullptr);
}

void HostCall::announceOnce(void* self) {
  const std::unique_ptr<HostCall> call(static_cast<HostCall*>(self));
  call->callbacks->announce(call->callback);
}

void HostCall::runNode(void* self) {
  const auto* call = static_cast<const HostCall*>(self);
  call->callbacks->runAndWait(call->callback, CUDA_SUCCESS, call);
}

}  // namespace millpond::worker
