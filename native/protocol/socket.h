// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond {

Result<UniqueFd> connectUnix(const std::string& path);
/// Connects within `timeoutMs`; Nagle's delay is off, since the caller batches.
Result<UniqueFd> connectTcp(const std::string& host, uint16_t port, int timeoutMs = 10'000);
/// Makes the socket file anew with the permission bits `mode`.
Result<UniqueFd> listenUnix(const std::string& path, unsigned mode);
/// Loopback addresses only, until connections are encrypted. `port` 0 takes a free one and stores it.
Result<UniqueFd> listenTcp(const std::string& host, uint16_t& port);
void tuneTcp(int socket);

/// How long a peer may take nothing of what is sent to it.
inline constexpr int kSendPatienceMs = 10'000;

/// Sends everything, or fails, also when the peer takes nothing for `patienceMs`; never raises SIGPIPE. The patience
/// holds for sockets that do not block.
Status sendAll(int socket, std::span<const std::byte> bytes, int patienceMs = kSendPatienceMs);
/// Runs of bytes that are sent one behind the other, with as few calls as the socket allows.
class SendRuns {
 public:
  static constexpr size_t kMost = 6;

  /// `bytes` must stay until they are sent; empty runs do not count.
  void add(std::span<const std::byte> bytes);
  bool done() const { return left_ == 0; }
  /// Bytes not sent yet.
  size_t left() const { return left_; }
  /// How many more runs it takes.
  size_t room() const { return kMost - used_; }
  /// Sends what the socket takes without waiting. False, with errno set, when it takes nothing.
  bool send(int socket);

 private:
  std::array<iovec, kMost> runs_;
  size_t first_ = 0;
  size_t used_ = 0;
  size_t left_ = 0;
};

/// Receives exactly that much within `timeoutMs` or fails.
Status receiveExactly(int socket, std::span<std::byte> bytes, int timeoutMs);

/// Sends one byte with a file descriptor; patient as `sendAll`.
Status sendFile(int socket, int file, int patienceMs = kSendPatienceMs);
/// Receives what `sendFile` sent.
Result<UniqueFd> receiveFile(int socket, int timeoutMs);

/// Pid of the peer of a Unix socket as this side's kernel sees it, 0 where unknown.
int32_t peerPid(int socket);

}  // namespace millpond
