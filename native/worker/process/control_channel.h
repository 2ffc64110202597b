// SPDX-License-Identifier: Apache-2.0
// The agent's connection to this worker: one JSON object per line. The newest connection that proves to be the agent's
// is used.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond::worker {

/// Version of the messages between agent and worker; the agent's is `controlProtocol` in
/// agent/src/workers/worker-process.ts. Independent of wire::kProtocolVersion, which client and worker must share.
inline constexpr int kControlProtocol = 1;

class ControlChannel {
 public:
  /// `key`: presented by an agent in its first line, `{"type":"attach","key":"…"}`, before it replaces the present one;
  /// workers of the same user can connect as well. Empty: any connection is accepted as the agent's.
  Status listen(const std::string& path, std::string key = "");

  /// The sockets to poll for reading.
  void collect(std::vector<int>& sockets) const;
  /// The agent's connection; -1 if there is none.
  int connection() const { return connection_.get(); }
  bool connected() const { return static_cast<bool>(connection_); }

  /// Accepts connections; the newest one that has presented the key replaces the present one. Returns whether there was
  /// such a connection.
  bool accept();
  /// Returns the received messages; a malformed line or a closed connection ends the connection.
  std::vector<Json> receive();
  /// Sends a message, and drops the connection if it cannot take it immediately: an agent either reads or is replaced.
  void send(const Json& message);

 private:
  /// A connection that has not presented the key yet.
  struct Caller {
    UniqueFd socket;
    std::string received;
  };
  enum class Progress { kMore, kDrop, kAgent };
  Progress read(Caller& caller) const;
  /// Appends the complete lines received. Returns false if the connection broke a rule and was dropped.
  bool takeLines(std::vector<Json>& messages);
  void become(UniqueFd socket, std::string received);

  UniqueFd listener_;
  std::string key_;
  std::deque<Caller> callers_;
  UniqueFd connection_;
  std::string inbox_;
};

}  // namespace millpond::worker
