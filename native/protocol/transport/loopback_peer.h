// SPDX-License-Identifier: Apache-2.0
// Which user serves a connection over loopback. Without TLS nothing else tells a service from another user's program that
// took the service's port while it was away, and waits for tokens.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace millpond {

/// Users that may serve unencrypted connections over loopback, in addition to root, the user of this process, and the
/// user `millpond` of installed services.
using TrustedUsers = std::vector<uid_t>;

/// Why nothing may be sent over a connection.
struct PeerDoubt {
  std::string message;
  bool isStranger = false;  ///< another user serves it; otherwise no process does, for example while a service restarts
};

/// Asks the kernel for the user that serves a connected TCP socket; none if it may be used. Peers beyond loopback are
/// not checked, and no peers are checked if the kernel gives no information (no NETLINK_SOCK_DIAG), or if a user
/// namespace hides the server's user.
std::optional<PeerDoubt> doubtLoopbackPeer(int socket, const TrustedUsers& more);

}  // namespace millpond
