// SPDX-License-Identifier: Apache-2.0
// Host memory that is registered with the driver.
#pragma once

#include <cstdint>
#include <map>

#include "worker/core/session_part.h"

namespace millpond::worker {

class PinnedMemory : private SessionPart {
 public:
  explicit PinnedMemory(SessionCore& session) : SessionPart(session) {}

  /// Registers it in a context that lives as long as the session; again after that context is reset.
  CUresult pin(void* memory, uint64_t bytes, unsigned flags) {
    const uint16_t before = contexts_.bound();
    const uint16_t home = before ? contexts_.primaryOf(before) : uint16_t{1};
    contexts_.use(home);
    const CUresult rc = driver_.cuMemHostRegister_v2(memory, bytes, flags);
    if (!rc) pinned_[memory] = {bytes, flags, home};
    contexts_.use(before);
    return rc;
  }
  void unpin(void* memory) {
    pinned_.erase(memory);
    driver_.cuMemHostUnregister(memory);
  }
  /// The context was reset, and its registrations ended with it.
  CUresult pinAgain(uint16_t context) {
    for (const auto& [memory, pinned] : pinned_)
      if (pinned.context == context)
        if (CUresult rc = driver_.cuMemHostRegister_v2(memory, pinned.bytes, pinned.flags)) return rc;
    return CUDA_SUCCESS;
  }

 private:
  struct Pinned {
    uint64_t bytes;
    unsigned flags;
    uint16_t context;
  };
  std::map<void*, Pinned> pinned_;
};

}  // namespace millpond::worker
