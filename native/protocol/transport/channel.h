// SPDX-License-Identifier: Apache-2.0
// A connected socket, plain or encrypted.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/transport/socket.h"
#include "protocol/transport/tls_stream.h"

namespace millpond {

/// One thread may receive while another sends; others may wait.
class Channel {
 public:
  Channel() = default;
  Channel(UniqueFd socket) : socket_(std::move(socket)) {}
  Channel(Channel&& other) noexcept { *this = std::move(other); }
  Channel& operator=(Channel&& other) noexcept {
    socket_ = std::move(other.socket_);
    tls_ = std::move(other.tls_);
    holds_.store(other.holds_.load());
    return *this;
  }

  /// From here on by `tls`, which has made its handshake.
  void encrypt(std::unique_ptr<TlsStream> tls) {
    tls_ = std::move(tls);
    holds_.store(tls_->holdsBytes());
  }

  int socket() const { return socket_.get(); }
  /// Whether bytes that came already wait to be received.
  bool holdsBytes() const { return holds_.load(std::memory_order_relaxed); }
  bool isEncrypted() const { return tls_ != nullptr; }

  /// As recv(2) that does not wait; memory that cannot be written faults as any access of this process to it.
  ssize_t receive(std::span<std::byte> to) {
    if (!tls_) return receivePlain(to);
    const ssize_t n = tls_->receive(socket_.get(), to);
    holds_.store(tls_->holdsBytes(), std::memory_order_relaxed);
    return n;
  }
  /// As sendmsg(2) that neither waits nor raises a signal of the socket; memory that cannot be read faults as any access of
  /// this process to it. What it did not take has to come first again.
  ssize_t send(std::span<const iovec> runs);
  /// Which of these events there are; 0 when the time is over. Bytes that came already count as POLLIN.
  int wait(short events, int timeoutMs) const;

  /// Goes on with another connection, on the same number: it may be in the hands of threads that wait.
  bool takeOver(Channel other);
  void close() {
    socket_.reset();
    tls_.reset();
  }
  /// In a forked child: drops the connections that the parent continues to use, whatever its threads were doing.
  void abandon();

 private:
  ssize_t receivePlain(std::span<std::byte> to);

  UniqueFd socket_;
  std::unique_ptr<TlsStream> tls_;
  std::atomic<bool> holds_{false};
};

/// As those of sockets.
Status sendAll(Channel& channel, std::span<const std::byte> bytes, int patienceMs = kSendPatienceMs);
Status receiveExactly(Channel& channel, std::span<std::byte> bytes, int timeoutMs);

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
  /// Sends what the socket takes without waiting. False, with errno set, when it takes nothing; the runs of the next
  /// call must then begin with these bytes.
  bool send(Channel& channel);

 private:
  std::array<iovec, kMost> runs_;
  size_t first_ = 0;
  size_t used_ = 0;
  size_t left_ = 0;
};

}  // namespace millpond
