// SPDX-License-Identifier: Apache-2.0
// A client that sends arbitrary bytes and does not wait for replies; it hands on those that come.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/rings/ring.h"
#include "protocol/wire.h"
#include "testing/check.h"

namespace millpond::worker {

class RawClient {
 public:
  using OnReply = std::function<void(const wire::ReplyHeader& header, std::span<const std::byte> body)>;

  /// `memory`: shared with the worker; null over TCP.
  RawClient(UniqueFd socket, SessionMemory* memory, OnReply onReply)
      : socket_(std::move(socket)), memory_(memory), onReply_(std::move(onReply)) {
    if (!memory_) return;
    commands_ = RingProducer(memory_->control().submit, memory_->submit(), wire::kSubmitBytes);
    replies_ = RingConsumer(memory_->control().reply, memory_->reply(), wire::kReplyBytes);
  }

  bool isEnded() const { return isEnded_; }
  /// Returns false if the worker has no room for the bytes.
  bool send(std::span<const std::byte> frame) {
    if (!memory_) {
      if (unsent_.size() > wire::kSubmitBytes) return false;
      unsent_.insert(unsent_.end(), frame.begin(), frame.end());
      return true;
    }
    if (!commands_.hasSpace(frame.size())) return false;
    std::memcpy(commands_.place(), frame.data(), frame.size());
    commands_.advance(frame.size());
    commands_.publish();
    return true;
  }
  /// Sends and receives what is possible, waiting at most that long.
  void step(int timeoutMs) {
    if (memory_) {
      take({replies_.data(), replies_.available()});
      replies_.skip(replies_.available());
      replies_.release(replies_.position());
    }
    pollfd look{socket_.get(), static_cast<short>(POLLIN | (unsent_.empty() ? 0 : POLLOUT)), 0};
    if (::poll(&look, 1, timeoutMs) <= 0) return;
    if (look.revents & POLLOUT) {
      const ssize_t n = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) unsent_.erase(unsent_.begin(), unsent_.begin() + n);
    }
    if (look.revents & (POLLIN | POLLHUP | POLLERR)) receive();
  }
  void leave() { socket_.reset(); }

 private:
  void receive() {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> room{};
    std::array<std::byte, 65536> bytes;
    iovec data{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) isEnded_ = true;
    if (n <= 0) return;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(header), sizeof(file));
      UniqueFd{file}.reset();
    }
    if (!memory_) take(std::span(bytes).first(static_cast<size_t>(n)));
  }
  void take(std::span<const std::byte> bytes) {
    received_.insert(received_.end(), bytes.begin(), bytes.end());
    size_t at = 0;
    while (received_.size() - at >= sizeof(wire::ReplyHeader)) {
      wire::ReplyHeader header;
      std::memcpy(&header, received_.data() + at, sizeof(header));
      // The worker's frames must be valid, whatever it has received.
      CHECK(header.bytes >= sizeof(header) && header.bytes % 8 == 0 && header.bytes <= wire::kMaxReplyBytes);
      if (header.bytes > received_.size() - at) break;
      const auto body = std::span(received_).subspan(at + sizeof(header), header.bytes - sizeof(header));
      if (header.kind == wire::ReplyKind::kChunk) releaseChunk(body);
      onReply_(header, body);
      at += header.bytes;
    }
    received_.erase(received_.begin(), received_.begin() + static_cast<ptrdiff_t>(at));
  }
  void releaseChunk(std::span<const std::byte> body) {
    wire::ChunkReady ready;
    CHECK(memory_ != nullptr && body.size() >= sizeof(ready));
    std::memcpy(&ready, body.data(), sizeof(ready));
    CHECK(ready.chunk < wire::kStagingChunks);
    memory_->control().chunkBusy[ready.chunk].store(0);
  }

  UniqueFd socket_;
  SessionMemory* memory_;
  OnReply onReply_;
  RingProducer commands_;
  RingConsumer replies_;
  std::vector<std::byte> unsent_;
  std::vector<std::byte> received_;
  bool isEnded_ = false;
};

}  // namespace millpond::worker
