// SPDX-License-Identifier: Apache-2.0
// Streams and events: waits for them, and their attributes.
#pragma once

#include "worker/commands/memory/frees.h"
#include "worker/commands/memory/memory_operations.h"
#include "worker/core/session_part.h"
#include "worker/core/waits.h"

namespace millpond::worker {

class Streams : private SessionPart {
 public:
  Streams(SessionCore& session, Waits& waits, Frees& frees, MemoryOperations& operations)
      : SessionPart(session), waits_(waits), frees_(frees), operations_(operations) {}

  CUresult onMarker(const cmd::Decoded<cmd::Marker>& command);
  CUresult onStreamSync(const cmd::Decoded<cmd::StreamSync>& command);
  CUresult onEventSync(const cmd::Decoded<cmd::EventSync>& command);
  CUresult onContextSync(const cmd::Decoded<cmd::ContextSync>& command);
  CUresult onStreamSetAttribute(const cmd::Decoded<cmd::StreamSetAttribute>& command);
  CUresult onStreamGetAttribute(const cmd::Decoded<cmd::StreamGetAttribute>& command);

 private:
  Waits& waits_;
  Frees& frees_;
  MemoryOperations& operations_;
};

}  // namespace millpond::worker
