// SPDX-License-Identifier: Apache-2.0
// The address at which a client finds its worker, and the ticket that it presents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "protocol/transport/loopback_peer.h"
#include "protocol/transport/tls_stream.h"

namespace millpond {

/// Which transport a client may use.
enum class TransportChoice {
  Auto,          ///< shared memory if the worker is on this machine, TCP otherwise
  SharedMemory,  ///< only shared memory
  Tcp,           ///< only TCP
};

/// At least one of unixPath and tcpHost is set. With both, the Unix socket is tried first; if it cannot be reached, TCP
/// is used, unless the transport forbids it.
struct Endpoint {
  std::string unixPath;  ///< the worker's data socket; empty: not on this machine, or not requested
  std::string tcpHost;   ///< name or address, IPv6 without brackets; empty: no TCP
  uint16_t tcpPort = 0;
  std::optional<LinkSecret> secret;  ///< encrypts the TCP connection; empty: not encrypted
  TrustedUsers users;                ///< may serve unencrypted TCP on loopback, as some users always may
  TransportChoice transport = TransportChoice::Auto;
  std::string ticket;         ///< presented in the handshake; empty only for a worker without a ticket
  std::string session;        ///< the session's id for messages; empty if the worker was configured directly
  std::string program;        ///< short name of this program, for the worker's records
  bool canPark = false;       ///< the session may be parked and continued: see Session::onParked
  uint32_t graceSeconds = 0;  ///< how long to retry a lost TCP connection; 0: not at all
  uint32_t lanes = 0;         ///< further connections for large copies over TCP, at most wire::kMaxLanes
};

}  // namespace millpond
