// SPDX-License-Identifier: Apache-2.0
// Leads from the environment to a worker: claim, wait, ticket, session.
#pragma once

#include <string>

#include "base/result.h"
#include "client/attach/attach_config.h"
#include "protocol/handshake/endpoint.h"

namespace millpond::client {

/// A worker that waits for this process.
struct Attachment {
  Endpoint endpoint;
  std::string ownClaim;  ///< the claim that this process created for itself; empty: none
};

/// Gets a worker: directly from MILLPOND_WORKER, or from the controller through a claim, which is created here unless
/// the configuration names one. Waits for the claim to be bound, renewing its lease, and reports the reason for waiting
/// on standard error. A claim created here is released again if anything fails. The error is complete for a reader,
/// with its code.
Result<Attachment> attach(const AttachConfig& config);

/// Releases the claim that `attach` created, if the worker could not be used after all.
void releaseOwnClaim(const AttachConfig& config, const Attachment& attachment);

}  // namespace millpond::client
