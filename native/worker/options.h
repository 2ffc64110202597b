// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "protocol/tls_stream.h"
#include "worker/session_devices.h"
#include "worker/sharing.h"

namespace millpond::worker {

/// What a worker serves: one session.
struct Assignment {
  std::string session;
  std::string ticket;
  int64_t expires = 0;  ///< Unix seconds
  std::optional<LinkSecret> secret;  ///< of the client's TCP connections
  std::vector<DeviceShare> devices;
  /// Of the claim, which its sessions on this node know; none: this one shares nothing.
  std::optional<Sharing::Secret> group;
  /// After so long without a command the session is parked, if it holds nothing and its client can attach anew; 0: never.
  int64_t parkAfterNs = 0;

  static Result<Assignment> parse(const Json& message);
};

/// Other sizes for the devices of a session, which stay the same.
struct Resizing {
  std::string session;
  uint64_t revision = 0;  ///< of the answer
  std::vector<DeviceShare> devices;

  static Result<Resizing> parse(const Json& message);
};

struct Options {
  std::string driver;
  bool probe = false;
  bool health = false;
  std::string id;
  std::string controlPath;
  std::string dataPath;
  std::optional<std::string> tcpHost;
  uint16_t tcpPort = 0;
  std::string peersPath;  ///< of the socket for other workers
  std::string warmDevice;
  int orphanSeconds = 30;
  uint32_t reconnectGraceSeconds = 300;  ///< the most that a client gets
  std::string imageCache;
  std::string gates;  ///< directory
  uint64_t imageCacheBytes = uint64_t{8} << 30;
  std::optional<Assignment> assignment;

  static Result<Options> parse(std::span<char*> arguments);
};

}  // namespace millpond::worker
