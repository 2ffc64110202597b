// SPDX-License-Identifier: Apache-2.0
#include "worker/process/acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "protocol/futex.h"
#include "protocol/transport/socket.h"
#include "protocol/wire.h"

namespace millpond::worker {
namespace {

/// Maximum number of connections that have not completed their hello. A new one replaces the oldest: a client sends its
/// hello as soon as it is connected, so the connection that has been silent longest is not a client.
constexpr size_t kMaxCallers = 32;

}  // namespace

Status Acceptor::listenUnix(const std::string& path) {
  auto socket = millpond::listenUnix(path, 0666);
  if (!socket) return socket.error();
  unix_ = std::move(*socket);
  return Done{};
}

Status Acceptor::listenTcp(const std::string& host, uint16_t first, uint16_t last) {
  // Workers that start together begin at different ports, because each port that is in use costs two system calls.
  const uint32_t count = uint32_t{last} - first + 1;
  const uint32_t start = count == 1 ? 0 : static_cast<uint32_t>(::getpid()) % count;
  for (uint32_t tried = 0; !tcp_; ++tried) {
    tcpPort_ = static_cast<uint16_t>(first + (start + tried) % count);
    auto socket = millpond::listenTcp(host, tcpPort_);
    if (socket)
      tcp_ = std::move(*socket);
    else if (tried + 1 == count && count == 1)
      return socket.error();
    else if (tried + 1 == count)
      return Error{"no port from " + std::to_string(first) + " to " + std::to_string(last) + " is free on " + host +
                   ": " + socket.error().message};
  }
  needsSecret_ = !isLoopbackHost(host);
  return Done{};
}

void Acceptor::collect(std::vector<int>& sockets) const {
  if (unix_) sockets.push_back(unix_.get());
  if (tcp_) sockets.push_back(tcp_.get());
  for (const Pending& pending : pending_) sockets.push_back(pending.channel.socket());
}

void Acceptor::acceptFrom(int listener, bool remote) {
  for (size_t taken = 0; listener >= 0 && taken < kMaxCallers / 2; ++taken) {
    UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (remote) tuneTcp(socket.get());
    if (pending_.size() == kMaxCallers) {
      log(LogLevel::Info, "a connection was dropped for a newer one: it had not sent a complete greeting");
      pending_.pop_front();
    }
    Pending pending{std::move(socket), nullptr, remote, monotonicNs() + helloTimeoutNs_, {}};
    if (!remote || encrypt(pending)) pending_.push_back(std::move(pending));
  }
}

bool Acceptor::encrypt(Pending& pending) const {
  if (!secret_ && !needsSecret_) return true;
  if (!secret_) {
    log(LogLevel::Info, "a connection was rejected: there is no session yet to encrypt it for");
    return false;
  }
  auto tls = TlsStream::ofLink(kTlsServer, *secret_);
  if (!tls) {
    log(LogLevel::Error, "a connection was rejected: %s", tls.error().message.c_str());
    return false;
  }
  pending.handshaking = std::move(*tls);
  return true;
}

Acceptor::Progress Acceptor::read(Pending& pending) {
  if (pending.handshaking) {
    const MillpondTlsShake state = pending.handshaking->shake(pending.channel.socket());
    if (state == kTlsShakeFailed) {
      log(LogLevel::Info, "a connection was rejected: it is not encrypted as this session's are: %s",
          pending.handshaking->why().c_str());
      return Progress::kDrop;
    }
    if (state == kTlsShakeDone) pending.channel.encrypt(std::move(pending.handshaking));
  }
  const Progress progress = pending.handshaking ? Progress::kMore : readHello(pending);
  if (progress != Progress::kMore || monotonicNs() < pending.deadlineNs) return progress;
  log(LogLevel::Info, "a connection was dropped: it sent no complete greeting in time");
  return Progress::kDrop;
}

Acceptor::Progress Acceptor::readHello(Pending& pending) {
  for (;;) {
    size_t wanted = kHelloFixedBytes;
    if (pending.received.size() >= kHelloFixedBytes) {
      auto rest = helloRest(std::span(pending.received).first<kHelloFixedBytes>());
      if (!rest) {
        log(LogLevel::Info, "a connection was rejected: %s", rest.error().message.c_str());
        return Progress::kDrop;
      }
      wanted += *rest;
      if (pending.received.size() == wanted) return Progress::kComplete;
    }
    std::byte buffer[4096];
    const size_t room = std::min(sizeof(buffer), wanted - pending.received.size());
    const ssize_t n = pending.channel.receive({buffer, room});
    if (n > 0) {
      pending.received.insert(pending.received.end(), buffer, buffer + n);
    } else if (n < 0 && errno == EAGAIN) {
      return Progress::kMore;
    } else if (n == 0 || errno != EINTR) {
      return Progress::kDrop;
    }
  }
}

std::optional<Acceptor::Admitted> Acceptor::serve(const Authorize& authorize) {
  acceptFrom(unix_.get(), false);
  acceptFrom(tcp_.get(), true);
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const Progress progress = read(*pending);
    if (progress == Progress::kMore) {
      ++pending;
      continue;
    }
    Pending done = std::move(*pending);
    pending = pending_.erase(pending);
    if (progress == Progress::kDrop) continue;
    auto hello = decodeHello(done.received);
    if (!hello) {
      log(LogLevel::Info, "a connection was rejected: %s", hello.error().message.c_str());
      continue;
    }
    const Welcome verdict = authorize(*hello, done.remote);
    if (verdict.admission == Admission::kWelcome) {
      const int32_t pid = done.remote ? static_cast<int32_t>(hello->pid) : peerPid(done.channel.socket());
      return Admitted{std::move(done.channel), std::move(*hello), done.remote, pid};
    }
    log(LogLevel::Info, "a client was rejected: %s", verdict.message.c_str());
    // A refusal is shorter than any socket's buffer; there is no need to wait for a peer that cannot take even that.
    if (auto sent = sendAll(done.channel, encode(verdict)); !sent)
      log(LogLevel::Debug, "the refusal could not be sent: %s", sent.error().message.c_str());
  }
  return std::nullopt;
}

}  // namespace millpond::worker
