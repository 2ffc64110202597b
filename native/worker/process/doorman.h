// SPDX-License-Identifier: Apache-2.0
// Admits the one client that presents the session's ticket, and turns everybody else away with a reason.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/handshake/handshake.h"
#include "protocol/transport/channel.h"

namespace millpond::worker {

class Doorman {
 public:
  /// A connection whose greeting is complete and whose ticket is right.
  struct Guest {
    Channel channel;
    Hello hello;
    bool remote = false;
    int32_t pid = 0;  ///< as this machine's kernel sees it; the client's own word over TCP
  };
  /// Decides on a greeting: kWelcome admits.
  using Judge = std::function<Welcome(const Hello&, bool remote)>;

  Status listenUnix(const std::string& path);
  /// Beyond loopback nobody is let in without a secret.
  Status listenTcp(const std::string& host, uint16_t port);
  bool needsSecret() const { return needsSecret_; }
  /// From now on callers over TCP are encrypted from the first byte, by what only they know.
  void setSecret(const LinkSecret& secret) { secret_ = secret; }
  uint16_t tcpPort() const { return tcpPort_; }
  /// How long a greeting may take; 5 s unless set.
  void setPatience(int64_t ns) { patienceNs_ = ns; }

  /// The sockets to poll for reading.
  void collect(std::vector<int>& sockets) const;
  /// Accepts, reads greetings, answers refusals. A guest when one was admitted; its welcome is not yet sent.
  std::optional<Guest> serve(const Judge& judge);

 private:
  struct Caller {
    Channel channel;
    std::unique_ptr<TlsStream> shaking;  ///< until the handshake is made
    bool remote;
    int64_t deadlineNs;
    std::vector<std::byte> received;
  };
  enum class Progress { kMore, kDrop, kComplete };
  Progress read(Caller& caller);
  Progress readGreeting(Caller& caller);
  /// Makes a caller's connection an encrypted one where it has to be. False: there is none for it.
  bool encrypt(Caller& caller) const;
  void acceptFrom(int listener, bool remote);

  UniqueFd unix_;
  UniqueFd tcp_;
  uint16_t tcpPort_ = 0;
  bool needsSecret_ = false;
  std::optional<LinkSecret> secret_;
  int64_t patienceNs_ = 5'000'000'000;
  std::list<Caller> callers_;
};

}  // namespace millpond::worker
