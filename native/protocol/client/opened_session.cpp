// SPDX-License-Identifier: Apache-2.0
#include "protocol/client/opened_session.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "protocol/gen/api_hash.h"
#include "protocol/handshake/process_watch.h"
#include "protocol/transport/loopback_peer.h"
#include "protocol/transport/socket.h"
#include "protocol/wire.h"

namespace millpond {
namespace {

std::string describe(const Endpoint& e, bool remote) {
  return remote ? e.tcpHost + ":" + std::to_string(e.tcpPort) : e.unixPath;
}

}  // namespace

Result<Welcome> greetWorker(Channel& channel, const Hello& hello, int timeoutMs) {
  const auto bytes = encode(hello);
  if (auto sent = sendAll(channel, bytes); !sent) return sent.error();
  std::vector<std::byte> answer(kWelcomeFixedBytes);
  if (auto got = receiveExactly(channel, answer, timeoutMs); !got) return got.error();
  auto rest = welcomeRest(std::span(answer).first<kWelcomeFixedBytes>());
  if (!rest) return rest.error();
  answer.resize(kWelcomeFixedBytes + *rest);
  if (auto got = receiveExactly(channel, std::span(answer).subspan(kWelcomeFixedBytes), timeoutMs); !got)
    return got.error();
  return decodeWelcome(answer);
}

Result<Channel> reachWorker(const Endpoint& endpoint, int timeoutMs) {
  auto socket = connectTcp(endpoint.tcpHost, endpoint.tcpPort, timeoutMs);
  if (!socket) return socket.error();
  const std::string where = "the worker at " + describe(endpoint, true);
  if (!endpoint.secret) {
    if (!isLoopbackPeer(socket->get()))
      return Error{where + " is on another machine, and there is no secret to encrypt the connection with"};
    if (const auto doubt = doubtLoopbackPeer(socket->get(), endpoint.users))
      return Error{"nothing was sent to " + where + ": " + doubt->message};
    return Channel(std::move(*socket));
  }
  auto tls = TlsStream::ofLink(kTlsClient, *endpoint.secret);
  if (!tls) return tls.error();
  if (auto shaken = (*tls)->shakeWithin(socket->get(), timeoutMs); !shaken)
    return Error{where + " does not accept the encrypted connection of this session: " + shaken.error().message};
  Channel channel(std::move(*socket));
  channel.encrypt(std::move(*tls));
  return channel;
}

Result<OpenedSession> openSession(const Endpoint& endpoint, bool isParked, const Hello* greet) {
  OpenedSession out;
  auto channel = Result<Channel>(Error{"the worker has no address"});
  if (!endpoint.unixPath.empty() && endpoint.transport != TransportChoice::Tcp) {
    auto socket = connectUnix(endpoint.unixPath);
    channel = socket ? Result<Channel>(std::move(*socket)) : Result<Channel>(socket.error());
  }
  if (!channel && !endpoint.tcpHost.empty() && endpoint.transport != TransportChoice::SharedMemory) {
    out.remote = true;
    channel = reachWorker(endpoint, kHandshakeTimeoutMs);
  }
  if (!channel) return channel.error();
  out.channel = std::move(*channel);

  const std::string where = describe(endpoint, out.remote);
  Hello hello{wire::kProtocolVersion,
              kApiHash,
              out.remote ? Carrier::kTcp : Carrier::kSharedMemory,
              static_cast<uint32_t>(::getpid()),
              endpoint.ticket,
              endpoint.program,
              out.remote ? endpoint.graceSeconds : 0,
              ProcessWatch::space(),
              {},
              endpoint.canPark,
              isParked};
  auto welcome = greetWorker(out.channel, greet ? *greet : hello, kHandshakeTimeoutMs);
  if (!welcome) return Error{"worker at " + where + ": " + welcome.error().message};
  if (welcome->admission != Admission::kWelcome) return Error{"worker at " + where + ": " + welcome->message};
  out.welcome = std::move(*welcome);
  auto snapshot = Snapshot::decode(out.welcome.snapshot);
  if (!snapshot) return Error{"worker at " + where + ": " + snapshot.error().message};
  out.snapshot = std::move(*snapshot);
  if (out.remote) return out;
  auto file = receiveFile(out.channel.socket(), kHandshakeTimeoutMs);
  if (!file) return Error{"worker at " + where + ": " + file.error().message};
  out.memory = std::move(*file);
  return out;
}

}  // namespace millpond
