// SPDX-License-Identifier: Apache-2.0
// Accepts connections, and admits the one client that presents the session's ticket; all others are refused with a
// reason.
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

class Acceptor {
 public:
  /// A connection whose hello is complete and whose ticket is valid.
  struct Admitted {
    Channel channel;
    Hello hello;
    bool remote = false;
    int32_t pid = 0;  ///< as reported by this machine's kernel; by the client itself over TCP
  };
  /// Decides on a hello: kWelcome admits.
  using Authorize = std::function<Welcome(const Hello&, bool remote)>;

  Status listenUnix(const std::string& path);
  /// Listens on one port from `first` to `last` that is free; 0 and 0: on any. Beyond loopback no connection is accepted
  /// without a secret.
  Status listenTcp(const std::string& host, uint16_t first, uint16_t last);
  bool needsSecret() const { return needsSecret_; }
  /// From now on connections over TCP are encrypted from the first byte, authenticated by a secret that only the client
  /// knows.
  void setSecret(const LinkSecret& secret) { secret_ = secret; }
  uint16_t tcpPort() const { return tcpPort_; }
  /// Timeout of a hello; 5 s by default.
  void setHelloTimeout(int64_t ns) { helloTimeoutNs_ = ns; }

  /// The sockets to poll for reading.
  void collect(std::vector<int>& sockets) const;
  /// Accepts connections, reads hellos, sends refusals. Returns the admitted client, if any; its welcome has not been
  /// sent yet.
  std::optional<Admitted> serve(const Authorize& authorize);

 private:
  struct Pending {
    Channel channel;
    std::unique_ptr<TlsStream> handshaking;  ///< until the handshake is complete
    bool remote;
    int64_t deadlineNs;
    std::vector<std::byte> received;
  };
  enum class Progress { kMore, kDrop, kComplete };
  Progress read(Pending& pending);
  Progress readHello(Pending& pending);
  /// Encrypts a connection if required. Returns false if encryption is required but not configured.
  bool encrypt(Pending& pending) const;
  void acceptFrom(int listener, bool remote);

  UniqueFd unix_;
  UniqueFd tcp_;
  uint16_t tcpPort_ = 0;
  bool needsSecret_ = false;
  std::optional<LinkSecret> secret_;
  int64_t helloTimeoutNs_ = 5'000'000'000;
  std::list<Pending> pending_;
};

}  // namespace millpond::worker
