// SPDX-License-Identifier: Apache-2.0
// Pinned memory of this worker: buffers that copies reuse, and pages that represent pages of the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "worker/commands/memory/pinned_memory.h"
#include "worker/core/claim_counts.h"
#include "worker/core/function_order.h"
#include "worker/memory/client_pages.h"

namespace millpond::worker {

/// Kept for the next copies: freeing it could wait for the device.
struct HostBuffer {
  std::byte* memory = nullptr;
  uint64_t bytes = 0;
  uint64_t age = 0;  ///< of a spare buffer: higher if it was returned later
};

/// The driver waits for the device when pinned memory is freed, and no command is read meanwhile, although streams may
/// need one in order to continue. So memory is freed only when all streams are done.
class HostBuffers : private SessionPart {
 public:
  HostBuffers(SessionCore& session, ClaimCounts& counts, PinnedMemory& pinned, FunctionOrder& functions,
              ClientPages& clientPages)
      : SessionPart(session), counts_(counts), pinned_(pinned), functions_(functions), clientPages_(clientPages) {}

  /// A buffer of at least that many bytes; it becomes a spare again when its last owner releases it.
  /// CUDA_ERROR_OUT_OF_MEMORY if there is no room, otherwise the driver's error, for example that of a kernel before.
  CUresult take(uint64_t bytes, std::shared_ptr<const HostBuffer>& out);
  /// If all streams are done: frees spare buffers, the least recently used first, until at most that many bytes are left,
  /// and ends the views that `leave` took.
  void shrink(uint64_t spareBytes);

  /// Pinned memory of this worker that represents those bytes of the client. CUDA_ERROR_OUT_OF_MEMORY if there is no
  /// room.
  CUresult view(uint64_t address, uint64_t bytes, ClientPages::View& view);
  /// Nothing uses the views any more: `shrink` returns them to the system.
  void leave(const ClientPages::View& view) { ended_.push_back(view); }

 private:
  /// Takes that much host memory, if necessary after freeing spare buffers.
  bool takeHost(uint64_t bytes);
  /// Waits for all streams, for a limited time. Returns false if they may need the program in order to continue.
  bool awaitStreams();

  ClaimCounts& counts_;
  PinnedMemory& pinned_;
  FunctionOrder& functions_;
  ClientPages& clientPages_;
  std::multimap<uint64_t, HostBuffer> spare_;  ///< by size
  uint64_t spareBytes_ = 0;
  uint64_t lastSpare_ = 0;
  std::vector<ClientPages::View> ended_;
};

}  // namespace millpond::worker
