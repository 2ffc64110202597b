// SPDX-License-Identifier: Apache-2.0
// The environment of a client process: the raw variables, and the parsed configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "client/attach/http.h"
#include "protocol/handshake/endpoint.h"

namespace millpond::client {

/// The variables of docs/reference/interfaces.md, unparsed, and the identity of this process. An empty variable counts
/// as unset.
struct Environment {
  std::optional<std::string> controller, authorities, token, claim, gpus, memory, compute, transport, waitTimeout,
      worker, ticket, linkSecret, reconnectGrace, lanes, trustedUsers;
  /// Variables of a claim that the controller parses: name and value.
  std::vector<std::pair<std::string, std::string>> claimVariables;
  std::string bootId;   ///< of this machine; empty if unknown
  std::string program;  ///< short name of the executable
  std::string user;
  std::string host;
  int pid = 0;

  static Environment ofThisProcess();
  /// Neither a controller nor a worker is configured, so this process has no GPU.
  bool empty() const { return !controller && !worker; }
};

/// Memory of a vGPU of the client's own claim; both zero: the whole device.
struct MemorySize {
  uint64_t bytes = 0;
  uint32_t percent = 0;  ///< 1–100

  /// `512Mi`, `8G`, `1.5Gi`, a plain integer in MiB, `50%`, or a fraction with a point such as `0.5`.
  static Result<MemorySize> parse(std::string_view text);
};

/// The parsed configuration: where to attach, and the request; every field is valid.
struct AttachConfig {
  std::optional<Endpoint> worker;  ///< set: attach directly to it; everything below except the transport is ignored
  std::vector<Url> controllers;    ///< at least one; several share a state, and one is the leader
  HttpTrust trust;                 ///< of controllers and agents
  std::string token;
  std::string claim;  ///< name of an existing claim; empty: create one
  uint32_t gpus = 1;
  MemorySize memory;
  uint32_t computePercent = 0;  ///< 0: in proportion to the memory
  TransportChoice transport = TransportChoice::Auto;
  std::vector<std::pair<std::string, std::string>> claimVariables;  ///< parsed by the controller
  int waitTimeoutSeconds = 0;                                       ///< 0: wait indefinitely
  uint32_t reconnectGraceSeconds = 60;                              ///< 0: a lost connection ends the session
  uint32_t lanes = 0;                                               ///< see Endpoint
  /// The models that were reported to the process for earlier devices of the claim; empty for a first attachment.
  std::vector<std::string> toldModels;
  bool wasLocal = false;  ///< likewise: the process shared memory with the worker of those devices
  std::string bootId;
  std::string program;
  std::string owner;  ///< `user@host:pid program`
  int pid = 0;

  static Result<AttachConfig> from(const Environment& environment);
};

}  // namespace millpond::client
