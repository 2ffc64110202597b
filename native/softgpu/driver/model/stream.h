// SPDX-License-Identifier: Apache-2.0
// The object behind a CUstream handle, and the default streams, which have no object of their own.
#pragma once

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/context.h"

namespace millpond::softgpu {

/// Priorities range from 0 (least) to this (greatest), as on a card of compute capability 7.5.
inline constexpr int kGreatestPriority = -5;

/// A stream that a program has created.
class Stream {
 public:
  Stream(ContextPtr context, QueuePtr queue)
      : context_(std::move(context)), queue_(std::move(queue)), contextId_(context_->id()) {}

  const ContextPtr& context() const { return context_; }
  const QueuePtr& queue() const { return queue_; }
  uint64_t contextId() const { return contextId_; }

 private:
  const ContextPtr context_;
  const QueuePtr queue_;
  const uint64_t contextId_;
};

/// A stream argument, resolved.
struct StreamTarget {
  ContextPtr context;
  QueuePtr queue;
};

}  // namespace millpond::softgpu
