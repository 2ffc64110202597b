// SPDX-License-Identifier: Apache-2.0
// Pinned memory of this worker: buffers that copies use again and again, and pages that stand for pages of the client.
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

/// Kept for the next copies: giving it back to the driver could wait for the device.
struct HostBuffer {
  std::byte* memory = nullptr;
  uint64_t bytes = 0;
  uint64_t age = 0;  ///< of a spare one: higher, the later it was given back
};

class HostBuffers {
 public:
  HostBuffers(ClaimCounts& counts, PinnedMemory& pinned, FunctionOrder& functions)
      : counts_(counts), pinned_(pinned), functions_(functions) {}

  /// A buffer of that many bytes at least, a spare one again when the last owner lets go of it. Null where there is no
  /// room for it.
  std::shared_ptr<const HostBuffer> take(uint64_t bytes);
  /// Gives spare ones back to the system, those that were used longest ago first, until there are no more than that.
  void trim(uint64_t bytes);

  /// Pinned memory at the place in this worker that stands for those bytes of the client. CUDA_ERROR_OUT_OF_MEMORY where
  /// there is no room for it.
  CUresult view(uint64_t address, uint64_t bytes, ClientPages::View& view);
  /// Nothing looks at them any more: `endViews` gives them back to the system.
  void leave(const ClientPages::View& view) { ended_.push_back(view); }
  void endViews();

 private:
  /// Takes that much host memory, if need be after giving back what is only kept for later.
  bool takeHost(uint64_t bytes);

  ClaimCounts& counts_;
  PinnedMemory& pinned_;
  FunctionOrder& functions_;
  std::multimap<uint64_t, HostBuffer> spare_;  ///< by size
  uint64_t spareBytes_ = 0;
  uint64_t lastSpare_ = 0;
  ClientPages clientPages_;
  std::vector<ClientPages::View> ended_;
};

}  // namespace millpond::worker
