// SPDX-License-Identifier: Apache-2.0
// The agent's line to this worker: JSON objects, one a line. The newest connection that proves to be the agent's is it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond::worker {

/// Version of the messages between agent and worker; the agent's is `controlProtocol` in
/// agent/src/workers/worker-process.ts. Apart from wire::kProtocolVersion, which client and worker must share.
inline constexpr int kControlProtocol = 1;

class ControlChannel {
 public:
  /// `key`: what an agent says in its first line, `{"type":"attach","key":"…"}`, before it takes the place of the present
  /// one; workers of the same user can connect as well. Empty: whoever connects is the agent.
  Status listen(const std::string& path, std::string key = "");

  /// The sockets to poll for reading.
  void collect(std::vector<int>& sockets) const;
  /// The agent's connection, -1 without one.
  int connection() const { return connection_.get(); }
  bool connected() const { return static_cast<bool>(connection_); }

  /// Takes connections, and the newest that has shown the key in place of the present one. Whether there was one.
  bool accept();
  /// The messages that have come; a broken line or a closed connection ends the connection.
  std::vector<Json> receive();
  /// Drops the connection where it does not take the message at once: an agent reads, or is replaced.
  void send(const Json& message);

 private:
  /// A connection that has not shown the key yet.
  struct Caller {
    UniqueFd socket;
    std::string received;
  };
  enum class Progress { kMore, kDrop, kAgent };
  Progress read(Caller& caller) const;
  /// Adds the whole lines that are there. False: the connection broke a rule and is gone.
  bool takeLines(std::vector<Json>& messages);
  void become(UniqueFd socket, std::string received);

  UniqueFd listener_;
  std::string key_;
  std::deque<Caller> callers_;
  UniqueFd connection_;
  std::string inbox_;
};

}  // namespace millpond::worker
