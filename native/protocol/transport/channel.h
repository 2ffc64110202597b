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

  /// Switches to `tls`, whose handshake is complete.
  void encrypt(std::unique_ptr<TlsStream> tls) {
    tls_ = std::move(tls);
    holds_.store(tls_->holdsBytes());
  }

  int socket() const { return socket_.get(); }
  /// Whether received bytes are waiting.
  bool holdsBytes() const { return holds_.load(std::memory_order_relaxed); }
  bool isEncrypted() const { return tls_ != nullptr; }

  /// Like non-blocking recv(2); memory that cannot be written faults like any access by this process.
  ssize_t receive(std::span<std::byte> to) {
    if (!tls_) return receivePlain(to);
    const ssize_t n = tls_->receive(socket_.get(), to);
    holds_.store(tls_->holdsBytes(), std::memory_order_relaxed);
    return n;
  }
  /// Like non-blocking sendmsg(2) without SIGPIPE; memory that cannot be read faults like any access by this process.
  /// Unsent bytes must come first in the next call.
  ssize_t send(std::span<const iovec> runs);
  /// Waits for these events; returns those that occurred, 0 after the timeout. Bytes received already count as POLLIN.
  int wait(short events, int timeoutMs) const;

  /// Switches to another connection with the same descriptor number, because other threads may be waiting for it.
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

/// Like the socket calls of these names.
Status sendAll(Channel& channel, std::span<const std::byte> bytes, int patienceMs = kSendPatienceMs);
Status receiveExactly(Channel& channel, std::span<std::byte> bytes, int timeoutMs);

/// Runs of bytes that are sent consecutively, with as few system calls as possible.
class SendRuns {
 public:
  static constexpr size_t kMost = 6;

  /// `bytes` must stay until they are sent; empty runs do not count.
  void add(std::span<const std::byte> bytes);
  bool done() const { return left_ == 0; }
  /// Bytes not sent yet.
  size_t left() const { return left_; }
  /// Number of further runs that fit.
  size_t room() const { return kMost - used_; }
  /// Sends as much as the socket accepts without waiting. Returns false, with errno set, if it accepts nothing; the
  /// runs of the next call must then begin with these bytes.
  bool send(Channel& channel);

 private:
  std::array<iovec, kMost> runs_;
  size_t first_ = 0;
  size_t used_ = 0;
  size_t left_ = 0;
};

}  // namespace millpond
