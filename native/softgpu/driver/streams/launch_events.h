// SPDX-License-Identifier: Apache-2.0
// Events that a launch records by itself, as its attributes say.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/event.h"
#include "softgpu/driver/model/handle_table.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

class LaunchEvents {
 public:
  /// CUDA_ERROR_INVALID_HANDLE for an event that is not of the stream's context, CUDA_ERROR_INVALID_VALUE for one with
  /// timing, CUDA_ERROR_NOT_SUPPORTED while the stream is captured.
  static CUresult of(const StreamTarget& stream, std::span<const CUlaunchAttribute> attributes,
                     const HandleTable<Event, CUevent>& known, LaunchEvents* events);
  /// When the launch may begin its blocks; later work need not wait longer than that.
  void recordBegin(const QueuePtr& queue) const;
  /// When it has ended.
  void recordEnd(const QueuePtr& queue) const;

 private:
  std::vector<std::shared_ptr<Event>> atBegin_;
  std::vector<std::shared_ptr<Event>> atEnd_;
};

}  // namespace millpond::softgpu
