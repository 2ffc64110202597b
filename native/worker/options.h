// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "protocol/transport/tls_stream.h"
#include "worker/device/session_devices.h"
#include "worker/ipc/peer_sharing.h"

namespace millpond::worker {

/// Options of a worker and of the one session that it serves.
struct Assignment {
  std::string session;
  std::string ticket;
  int64_t expires = 0;               ///< Unix seconds
  std::optional<LinkSecret> secret;  ///< of the client's TCP connections
  std::vector<DeviceShare> devices;
  /// The secret of the claim, which its sessions on this node know; none: this session shares nothing.
  std::optional<Sharing::Secret> group;
  /// How long without a command until the session is parked, if it holds nothing and its client can attach again; 0:
  /// never.
  int64_t parkAfterNs = 0;
  /// Directory of the counts that the sessions of the allocation share; empty: there are no others.
  std::string claimDirectory;
  /// Secret of the claim's tenant on this node, 64 hexadecimal digits: the name of the folder of its images. Empty: not known.
  std::string tenant;
  uint64_t sizeRevision = 0;  ///< of the sizes of the devices
  /// Host memory that the sessions of the allocation may have together; 0: half of the host's.
  uint64_t claimHostBytes = 0;

  static Result<Assignment> parse(const Json& message);
};

/// New sizes of a session's devices.
struct Resizing {
  std::string session;
  uint64_t revision = 0;  ///< of the answer
  std::vector<DeviceShare> devices;

  static Result<Resizing> parse(const Json& message);
};

struct Options {
  std::string driver;
  bool probe = false;
  bool costs = false;
  bool health = false;
  std::string id;
  std::string controlPath;
  std::string controlKey;  ///< presented by an agent there; from MILLPOND_CONTROL_KEY, which hides it
  std::string dataPath;
  std::optional<std::string> tcpHost;
  uint16_t tcpPort = 0;      ///< 0: any
  uint16_t tcpLastPort = 0;  ///< end of a range, of which a free port is used; `tcpPort`: only that one
  std::string peersPath;     ///< of the socket for other workers
  std::string warmDevice;
  int orphanSeconds = 30;
  uint32_t reconnectGraceSeconds = 300;  ///< upper bound for clients
  std::string imageCache;
  std::string cupti;                     ///< library; empty: the default place of CUDA toolkits. From MILLPOND_CUPTI
  std::string gates;                     ///< directory
  std::vector<std::string> gateDevices;  ///< UUIDs of the devices whose gates a session may need
  std::string claims;                    ///< directory of the gates that assignments name
  uint64_t imageCacheBytes = uint64_t{8} << 30;
  /// User and group id to change to; needs root.
  std::optional<uint32_t> user;
  /// False: for debugging on a host without tenants.
  bool isContained = true;
  /// Whether to charge the driver's own memory like a card's; the software GPU takes only what the agent has measured.
  bool countsDriverMemory = false;
  /// Serve devices whose kernels can address this process's pageable memory.
  bool trustsPageableAccess = false;
  std::optional<Assignment> assignment;

  static Result<Options> parse(std::span<char*> arguments);
};

}  // namespace millpond::worker
