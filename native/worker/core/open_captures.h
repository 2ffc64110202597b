// SPDX-License-Identifier: Apache-2.0
// The stream captures that are open.
#pragma once

#include <cstdint>
#include <map>

#include "worker/device/driver.h"

namespace millpond::worker {

/// A stream of the session, and its context, which need not be the current one.
struct Stream {
  CUstream handle = nullptr;
  uint16_t context = 0;
  uint64_t wire = 0;  ///< the client's handle; 0: the default stream of the context
};

class OpenCaptures {
 public:
  struct Capture {
    uint64_t graph = 0;
    bool intoGraph = false;  ///< of the program; it outlives the capture
  };

  explicit OpenCaptures(const Driver& driver) : driver_(driver) {}

  bool empty() const { return byOrigin_.empty(); }
  /// By the stream on which they began.
  const std::map<uint64_t, Capture>& all() const { return byOrigin_; }
  const Capture* find(uint64_t origin) const {
    const auto found = byOrigin_.find(origin);
    return found == byOrigin_.end() ? nullptr : &found->second;
  }
  void begin(uint64_t origin, Capture capture) { byOrigin_[origin] = capture; }
  void end(uint64_t origin) { byOrigin_.erase(origin); }
  /// CU_STREAM_CAPTURE_STATUS_NONE, at no cost, while there is no capture at all.
  CUstreamCaptureStatus status(const Stream& stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (byOrigin_.empty() || !stream.handle) return status;
    if (driver_.cuStreamIsCapturing(stream.handle, &status)) return CU_STREAM_CAPTURE_STATUS_NONE;
    return status;
  }
  /// For commands that cannot be captured: a graph would use memory of this worker after it was reused. Captured copies
  /// are transferred as CaptureCopy.
  CUresult refuse(const Stream& stream) const {
    return status(stream) == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }

 private:
  const Driver& driver_;
  std::map<uint64_t, Capture> byOrigin_;
};

}  // namespace millpond::worker
