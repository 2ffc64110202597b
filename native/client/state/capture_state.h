// SPDX-License-Identifier: Apache-2.0
// Which captures the program has open, and which calls they forbid to which thread. The worker's driver has the captures
// themselves; threads are known here only.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/gen/cuda_api.h"
#include "protocol/client/session_client.h"

namespace millpond::client {

class CaptureState {
 public:
  /// Whether any capture is active. Costs one read: every call checks it.
  static bool anyOpen() noexcept { return open_.load(std::memory_order_relaxed) != 0; }

  /// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when a call of that name could disturb a capture, and the thread's mode or the
  /// captures' forbid it, or when it waits for a whole context in which one is open. Those captures are lost, and the worker
  /// gets a message.
  static CUresult check(const char* call, Session& session, uint32_t thread, uint16_t context) noexcept;
  /// The same for a call that could disturb one.
  static CUresult checkUnsafe(Session& session, uint32_t thread) noexcept;

  /// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT if the legacy stream, which waits for all blocking streams, is queried while
  /// one of these is captured. Those captures are invalidated, too.
  static CUresult checkLegacy(Session& session, uint32_t thread, uint16_t context) noexcept;

  /// The capture of that stream is invalidated, and the worker is notified.
  static void lose(uint64_t stream, Session& session, uint32_t thread) noexcept;

  static void begun(uint64_t stream, CUstreamCaptureMode mode, uint32_t thread, uint16_t context, bool isBlocking,
                    bool isIntoGraph) noexcept;
  /// Whether the stream's captured work goes into a graph of the program.
  static bool isIntoGraph(uint64_t stream) noexcept;
  /// CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD if that thread may not end the capture of the stream.
  static CUresult mayEnd(uint64_t stream, uint32_t thread) noexcept;
  /// Forgets captures that began on the stream.
  static void ended(uint64_t stream) noexcept;

  /// Whether the stream is known to be captured: no capture has ended since it was last queried.
  static bool isKnownCaptured(uint64_t stream) noexcept;
  static void learnCaptured(uint64_t stream) noexcept;

  /// The calling thread's mode.
  static CUstreamCaptureMode exchangeMode(CUstreamCaptureMode mode) noexcept;

 private:
  static inline std::atomic<uint32_t> open_{0};
};

}  // namespace millpond::client
