// SPDX-License-Identifier: Apache-2.0
// Links of several images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "worker/commands/modules/images.h"
#include "worker/core/session_objects.h"
#include "worker/core/session_part.h"
#include "worker/images/jit_options.h"

namespace millpond::worker {

class Links : private SessionPart {
 public:
  Links(SessionCore& session, ClaimCounts& counts, Images& images, SessionObjects& objects)
      : SessionPart(session), counts_(counts), images_(images), objects_(objects) {}

  bool empty() const { return links_.empty(); }

  CUresult onLinkCreate(const cmd::Decoded<cmd::LinkCreate>& command);
  CUresult onLinkAdd(const cmd::Decoded<cmd::LinkAdd>& command);
  CUresult onLinkComplete(const cmd::Decoded<cmd::LinkComplete>& command);
  CUresult onLinkRead(const cmd::Decoded<cmd::LinkRead>& command);
  CUresult onLinkDestroy(const cmd::Decoded<cmd::LinkDestroy>& command);

 private:
  struct Link {
    JitOptions options;  ///< the driver keeps its addresses
    std::span<const std::byte> code;
    HostCharge charge;  ///< of the driver's copies of the inputs, and of the code
  };

  ClaimCounts& counts_;
  Images& images_;
  SessionObjects& objects_;
  std::unordered_map<uint64_t, std::unique_ptr<Link>> links_;
};

}  // namespace millpond::worker
