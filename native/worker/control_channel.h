// SPDX-License-Identifier: Apache-2.0
// The agent's line to this worker: JSON objects, one a line. The newest connection is the agent.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond::worker {

/// Version of the messages between agent and worker; the agent's is `controlProtocol` in
/// agent/src/worker-process.ts. Apart from wire::kProtocolVersion, which client and worker must share.
inline constexpr int kControlProtocol = 1;

class ControlChannel {
 public:
  Status listen(const std::string& path);

  int listener() const { return listener_.get(); }
  /// The agent's connection, -1 without one.
  int connection() const { return connection_.get(); }
  bool connected() const { return static_cast<bool>(connection_); }

  /// Takes a waiting connection in place of the present one. Whether there was one.
  bool accept();
  /// The messages that have come; a broken line or a closed connection ends the connection.
  std::vector<Json> receive();
  /// Drops the connection where it does not take the message at once: an agent reads, or is replaced.
  void send(const Json& message);

 private:
  UniqueFd listener_;
  UniqueFd connection_;
  std::string inbox_;
};

}  // namespace millpond::worker
