// SPDX-License-Identifier: Apache-2.0
// From the environment to a worker: claim, wait, ticket, session.
#pragma once

#include <string>

#include "base/result.h"
#include "client/attach/attach_config.h"
#include "protocol/handshake/endpoint.h"

namespace millpond::client {

/// A worker that waits for this process.
struct Attachment {
  Endpoint endpoint;
  std::string ownClaim;  ///< the claim that this process made for itself; empty where there is none
};

/// Gets a worker: straight from MILLPOND_WORKER, or from the controller by way of a claim, which is made here
/// unless the configuration names one. Waits for the claim to be bound, renewing its lease, and says on
/// standard error what for. A claim made here is released again when anything fails. The error is complete
/// for a human, with its code.
Result<Attachment> attach(const AttachConfig& config);

/// Gives back the claim that `attach` made, for when the worker could not be used after all.
void releaseOwnClaim(const AttachConfig& config, const Attachment& attachment);

}  // namespace millpond::client
