// SPDX-License-Identifier: Apache-2.0
// The address at which a client finds its worker, and the ticket that it presents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "protocol/transport/tls_stream.h"

namespace millpond {

/// Which transport a client may use.
enum class TransportChoice {
  Auto,          ///< shared memory where the worker is on this machine, TCP otherwise
  SharedMemory,  ///< only shared memory
  Tcp,           ///< only TCP
};

/// At least one of unixPath and tcpHost is set. With both, the Unix socket is tried first; when it cannot be
/// reached TCP is used, unless the transport says otherwise.
struct Endpoint {
  std::string unixPath;  ///< the worker's data socket; empty: not on this machine, or not wanted
  std::string tcpHost;   ///< name or address, IPv6 without brackets; empty: no TCP
  uint16_t tcpPort = 0;
  std::optional<LinkSecret> secret;  ///< of the TCP connection, which is encrypted by it; without one it is plain
  TransportChoice transport = TransportChoice::Auto;
  std::string ticket;         ///< presented in the handshake; empty only for a worker that was assigned none
  std::string session;        ///< the session's id for messages; empty where the worker was named directly
  std::string program;        ///< short name of this program, for the worker's records
  bool canPark = false;       ///< the session may be parked, and be had again: see Session::onParked
  uint32_t graceSeconds = 0;  ///< for how long a lost TCP connection is tried to be made again; 0: not at all
};

}  // namespace millpond
