// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/event.h"

#include <chrono>

namespace millpond::softgpu {

void Event::record(const QueuePtr& queue) {
  const Recording recording = prepare();
  recording.submitted(context_->enqueueMarker(queue, recording.body));
}

Event::Recording Event::prepare() {
  auto made = std::make_shared<Record>();
  return {[made] {
            const auto now = std::chrono::steady_clock::now().time_since_epoch();
            made->nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
          },
          [this, made](const OperationPtr& operation) {
            std::lock_guard lock(mutex_);
            made->operation = operation;
            record_ = made;
          }};
}

std::shared_ptr<Event::Record> Event::record() const {
  std::lock_guard lock(mutex_);
  return record_;
}

OperationPtr Event::point() const {
  const std::shared_ptr<Record> last = record();
  return last ? last->operation : nullptr;
}

CUresult Event::elapsedSince(const Event& start, float* milliseconds) const {
  if (!hasTiming() || !start.hasTiming()) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Record> from = start.record();
  const std::shared_ptr<Record> to = record();
  if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->operation->isDone() || !to->operation->isDone()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(to->nanoseconds - from->nanoseconds) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu
