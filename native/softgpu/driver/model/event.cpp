// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/model/event.h"

#include <chrono>
#include <thread>

#include "softgpu/driver/model/device.h"

namespace millpond::softgpu {
namespace {

constexpr std::chrono::microseconds kLookEvery{200};

}  // namespace

void Event::record(const QueuePtr& queue) {
  const Recording recording = prepare();
  recording.submitted(hasTiming() ? context_->enqueueTimedMarker(queue, recording.body)
                                  : context_->enqueueMarker(queue, recording.body));
}

Event::Recording Event::prepare() {
  auto made = std::make_shared<Record>();
  const uint64_t point = shared_ ? shared_->record() : 0;
  return {[made, shared = shared_, point] {
            const auto now = std::chrono::steady_clock::now().time_since_epoch();
            made->nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
            if (shared) shared->reach(point);
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
  if (shared_) return sharedPoint();
  const std::shared_ptr<Record> last = record();
  return last ? last->operation : nullptr;
}

bool Event::isReached() const {
  if (shared_) return shared_->isReached(shared_->last());
  const OperationPtr last = point();
  return !last || last->isDone();
}

// A point recorded by another process is waited for by polling.
OperationPtr Event::sharedPoint() const {
  const uint64_t last = shared_->last();
  if (shared_->isReached(last)) return nullptr;
  auto waiting = std::make_shared<Operation>(Operation::Kind::host, [shared = shared_, last] {
    while (!shared->isReached(last)) std::this_thread::sleep_for(kLookEvery);
  });
  context_->device().dispatcher().submit(waiting, {}, Dispatcher::Next::left);
  return waiting;
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
