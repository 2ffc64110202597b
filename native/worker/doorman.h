// SPDX-License-Identifier: Apache-2.0
// Admits the one client that presents the session's ticket, and turns everybody else away with a reason.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/handshake.h"

namespace millpond::worker {

class Doorman {
 public:
  /// A connection whose greeting is complete and whose ticket is right.
  struct Guest {
    UniqueFd socket;
    Hello hello;
    bool remote = false;
    int32_t pid = 0;  ///< as this machine's kernel sees it; the client's own word over TCP
  };
  /// Decides on a greeting: kWelcome admits.
  using Judge = std::function<Welcome(const Hello&, bool remote)>;

  Status listenUnix(const std::string& path);
  Status listenTcp(const std::string& host, uint16_t port);
  uint16_t tcpPort() const { return tcpPort_; }
  /// How long a greeting may take; 5 s unless set.
  void setPatience(int64_t ns) { patienceNs_ = ns; }

  /// The sockets to poll for reading.
  void collect(std::vector<int>& sockets) const;
  /// Accepts, reads greetings, answers refusals. A guest when one was admitted; its welcome is not yet sent.
  std::optional<Guest> serve(const Judge& judge);

 private:
  struct Caller {
    UniqueFd socket;
    bool remote;
    int64_t deadlineNs;
    std::vector<std::byte> received;
  };
  enum class Progress { kMore, kDrop, kComplete };
  Progress read(Caller& caller);
  void acceptFrom(int listener, bool remote);

  UniqueFd unix_;
  UniqueFd tcp_;
  uint16_t tcpPort_ = 0;
  int64_t patienceNs_ = 5'000'000'000;
  std::list<Caller> callers_;
};

}  // namespace millpond::worker
