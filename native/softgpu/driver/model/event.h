// SPDX-License-Identifier: Apache-2.0
// The object behind a CUevent handle: a point in the work of a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/capture_point.h"
#include "softgpu/driver/model/context.h"
#include "softgpu/driver/model/shared_event.h"

namespace millpond::softgpu {

class Event {
 public:
  /// `shared`: for an interprocess event; otherwise null.
  Event(ContextPtr context, unsigned flags, std::shared_ptr<SharedEvent> shared = nullptr)
      : context_(std::move(context)), contextId_(context_->id()), flags_(flags), shared_(std::move(shared)) {}

  const ContextPtr& context() const { return context_; }
  uint64_t contextId() const { return contextId_; }
  /// Null if only this process has the event.
  const std::shared_ptr<SharedEvent>& shared() const { return shared_; }
  bool hasTiming() const { return !(flags_ & CU_EVENT_DISABLE_TIMING); }

  /// Marks this point in the queue's work; forgets the previous point.
  void record(const QueuePtr& queue);
  /// As record, for a point reached within a graph: `body` is its work, `submitted` receives the operation.
  struct Recording {
    std::function<void()> body;
    std::function<void(const OperationPtr&)> submitted;
  };
  Recording prepare();
  /// The last recorded point, wherever it was; null before the first one, which counts as reached.
  OperationPtr point() const;
  /// Whether it has been reached.
  bool isReached() const;
  /// Milliseconds from `start` to this event, both recorded and with timing.
  CUresult elapsedSince(const Event& start, float* milliseconds) const;

  CapturePoint capture;  ///< where it was last recorded, if that was in a capture

 private:
  struct Record {
    OperationPtr operation;
    std::atomic<int64_t> nanoseconds = 0;  // of the steady clock
  };
  std::shared_ptr<Record> record() const;
  OperationPtr sharedPoint() const;

  const ContextPtr context_;
  const uint64_t contextId_;
  const unsigned flags_;
  const std::shared_ptr<SharedEvent> shared_;
  mutable std::mutex mutex_;
  std::shared_ptr<Record> record_;
};

}  // namespace millpond::softgpu
