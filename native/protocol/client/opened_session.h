// SPDX-License-Identifier: Apache-2.0
// Connects a client to its worker and opens the session.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/handshake/endpoint.h"
#include "protocol/handshake/handshake.h"
#include "protocol/handshake/snapshot.h"
#include "protocol/transport/channel.h"

namespace millpond {

inline constexpr int kHandshakeTimeoutMs = 10'000;

/// A session that a worker has opened.
struct OpenedSession {
  Channel channel;
  bool remote = false;
  Welcome welcome;
  Snapshot snapshot;
  UniqueFd memory;  ///< over shared memory
};

/// Connects, presents the ticket and receives the snapshot. `isParked`: it continues a parked session. `greet` replaces
/// the hello, in tests.
Result<OpenedSession> openSession(const Endpoint& endpoint, bool isParked, const Hello* greet = nullptr);
/// Connects over TCP, encrypted if there is a secret; without one only to this machine, and only to a server of one of
/// the endpoint's users.
Result<Channel> reachWorker(const Endpoint& endpoint, int timeoutMs);
Result<Welcome> greetWorker(Channel& channel, const Hello& hello, int timeoutMs);

}  // namespace millpond
