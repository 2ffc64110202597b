// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond {

Result<UniqueFd> connectUnix(const std::string& path);
/// Connects within `timeoutMs`; Nagle's algorithm is off, because the caller batches.
Result<UniqueFd> connectTcp(const std::string& host, uint16_t port, int timeoutMs = 10'000);
/// Replaces the socket file by a new one with the permission bits `mode`.
Result<UniqueFd> listenUnix(const std::string& path, unsigned mode);
/// `port` 0 picks a free one and stores it.
Result<UniqueFd> listenTcp(const std::string& host, uint16_t& port);
void tuneTcp(int socket);

/// How long a peer may accept none of the bytes sent to it.
inline constexpr int kSendPatienceMs = 10'000;

/// Sends everything, or fails, also if the peer accepts nothing for `patienceMs`; never raises SIGPIPE.
Status sendAll(int socket, std::span<const std::byte> bytes, int patienceMs = kSendPatienceMs);
/// Receives exactly that much within `timeoutMs` or fails.
Status receiveExactly(int socket, std::span<std::byte> bytes, int timeoutMs);

/// Like `sendAll`, with calls of a non-blocking `send`, and of `wait`, which waits for POLLOUT and returns false after
/// the timeout.
template <typename Send, typename Wait>
Status sendAllBy(std::span<const std::byte> bytes, int patienceMs, Send&& send, Wait&& wait);
/// Like `receiveExactly`, with callbacks.
template <typename Receive, typename Wait>
Status receiveExactlyBy(std::span<std::byte> bytes, int timeoutMs, Receive&& receive, Wait&& wait);

/// Sends one byte with a file descriptor; same timeout as `sendAll`.
Status sendFile(int socket, int file, int patienceMs = kSendPatienceMs);
/// Receives the descriptor of `sendFile`.
Result<UniqueFd> receiveFile(int socket, int timeoutMs);

/// Whether the other end is on this machine.
bool isLoopbackPeer(int socket);
/// Whether `host` names only a loopback address.
bool isLoopbackHost(const std::string& host);

/// Pid of the peer of a Unix socket as this side's kernel sees it; 0: unknown.
int32_t peerPid(int socket);

Error systemError(const std::string& what);
int64_t millisecondsNow();

template <typename Send, typename Wait>
Status sendAllBy(std::span<const std::byte> bytes, int patienceMs, Send&& send, Wait&& wait) {
  while (!bytes.empty()) {
    const ssize_t n = send(bytes);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait(patienceMs)) return Error{"the other side took nothing for " + std::to_string(patienceMs) + " ms"};
    } else if (n < 0 && errno != EINTR) {
      return systemError("cannot send");
    }
  }
  return Done{};
}

template <typename Receive, typename Wait>
Status receiveExactlyBy(std::span<std::byte> bytes, int timeoutMs, Receive&& receive, Wait&& wait) {
  const int64_t deadline = millisecondsNow() + timeoutMs;
  while (!bytes.empty()) {
    const ssize_t n = receive(bytes);
    if (n == 0) return Error{"the other side closed the connection"};
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const int64_t left = deadline - millisecondsNow();
      if (left <= 0 || !wait(static_cast<int>(left)))
        return Error{"no answer within " + std::to_string(timeoutMs) + " ms"};
    } else if (errno != EINTR) {
      return systemError("cannot receive");
    }
  }
  return Done{};
}

}  // namespace millpond
