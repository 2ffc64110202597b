// SPDX-License-Identifier: Apache-2.0
// Green contexts: a device's primary context with a part of its resources. Only the driver knows the content of a
// resource, which includes its addresses: it gets back only the bytes that it returned.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "worker/commands/contexts/context_commands.h"
#include "worker/commands/memory/charges.h"
#include "worker/core/claim_counts.h"
#include "worker/core/session_objects.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class GreenContexts : private SessionPart {
 public:
  GreenContexts(SessionCore& session, ClaimCounts& counts, Charges& charges, SessionObjects& objects)
      : SessionPart(session), counts_(counts), charges_(charges), objects_(objects) {}

  CUresult onDeviceResource(const cmd::Decoded<cmd::DeviceResource>& command);
  CUresult onResourceSplit(const cmd::Decoded<cmd::ResourceSplit>& command);
  CUresult onResourceDescribe(const cmd::Decoded<cmd::ResourceDescribe>& command);
  CUresult onGreenCreate(const cmd::Decoded<cmd::GreenCreate>& command);
  CUresult onGreenStream(const cmd::Decoded<cmd::GreenStream>& command);

 private:
  /// Whether the driver has created that resource for this session.
  bool isKnown(const CUdevResource& resource) const;
  CUresult know(const CUdevResource& resource);

  ClaimCounts& counts_;
  Charges& charges_;
  SessionObjects& objects_;
  std::vector<CUdevResource> resources_;
  std::unordered_map<uint64_t, CUdevResourceDesc> descriptors_;
};

}  // namespace millpond::worker
