// SPDX-License-Identifier: Apache-2.0
#include "protocol/server_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "protocol/handshake.h"
#include "protocol/socket.h"

namespace millpond {
namespace {

/// A client that takes no reply for this long holds its worker up for nothing.
constexpr int64_t kReplyPatienceNs = 60'000'000'000;
/// The end of a session is not held up by a client that does not care.
constexpr int64_t kEndPatienceNs = 200'000'000;

}  // namespace

ServerLink::ServerLink(UniqueFd socket, SessionMemory memory, bool remote)
    : socket_(std::move(socket)),
      wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      memory_(std::move(memory)),
      remote_(remote),
      commands_(memory_.control().submit, memory_.submit(), wire::kSubmitBytes),
      incoming_(memory_.control().submit, memory_.submit(), wire::kSubmitBytes),
      replies_(memory_.control().reply, memory_.reply(), wire::kReplyBytes),
      patienceNs_(kReplyPatienceNs) {}

ServerLink::Next ServerLink::receive() {
  size_t room = incoming_.space();
  if (room == 0) return Next::kNothing;
  const ssize_t n = ::recv(socket_.get(), incoming_.place(), std::min(room, size_t{1} << 20), MSG_DONTWAIT);
  if (n == 0) return Next::kGone;
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Next::kNothing : Next::kGone;
  incoming_.advance(static_cast<size_t>(n));
  incoming_.publish();
  return Next::kFrame;
}

ServerLink::Next ServerLink::next(Frame& frame) {
  for (;;) {
    const size_t available = commands_.available();
    if (available > commands_.capacity()) {
      problem_ = "the command ring's head is " + std::to_string(available) + " bytes ahead, more than it holds";
      return Next::kBroken;
    }
    if (available >= sizeof(wire::CommandHeader)) {
      std::memcpy(&frame.header, commands_.data(), sizeof(frame.header));
      const size_t bytes = frame.header.bytes;
      if (bytes < sizeof(frame.header) || bytes > wire::kMaxFrameBytes || bytes % 8 != 0) {
        problem_ = "a command of " + std::to_string(bytes) + " bytes";
        return Next::kBroken;
      }
      if (bytes <= available) {
        frame.body = {commands_.data() + sizeof(frame.header), bytes - sizeof(frame.header)};
        commands_.skip(bytes);
        frame.end = commands_.position();
        return Next::kFrame;
      }
      if (!remote_) {
        problem_ = "a command of " + std::to_string(bytes) + " bytes of which only " + std::to_string(available) +
                   " are published";
        return Next::kBroken;
      }
    }
    if (!remote_) return Next::kNothing;
    const Next got = receive();
    if (got != Next::kFrame) return got;
  }
}

bool ServerLink::ready() {
  if (!remote_) return commands_.available() != 0;
  // With a full ring a command is there already, or `next` finds out that it never will be.
  return incoming_.space() == 0 || receive() != Next::kNothing;
}

void ServerLink::sleep(int64_t timeoutNs) {
  if (!remote_) {
    commands_.sleep(timeoutNs);
    return;
  }
  pollfd look[2] = {{socket_.get(), POLLIN, 0}, {wakeup_.get(), POLLIN, 0}};
  const timespec timeout{timeoutNs / 1'000'000'000, timeoutNs % 1'000'000'000};
  ::ppoll(look, 2, timeoutNs < 0 ? nullptr : &timeout, nullptr);
  if (look[1].revents & POLLIN) {
    uint64_t count;
    if (::read(wakeup_.get(), &count, sizeof(count)) < 0) return;  // another waker's count was read already
  }
}

void ServerLink::wake() {
  if (remote_) {
    const uint64_t one = 1;
    if (::write(wakeup_.get(), &one, sizeof(one)) < 0) return;  // the counter is full: it is awake
    return;
  }
  auto& sleeps = memory_.control().submit.consumerSleeps;
  sleeps.store(0);
  futexWake(sleeps);
}

bool ServerLink::write(wire::ReplyHeader header, std::span<const std::span<const std::byte>> parts) {
  size_t body = 0;
  for (const auto& part : parts) body += part.size();
  header.bytes = static_cast<uint32_t>(sizeof(header) + wire::padded(body));
  return remote_ ? writeSocket(header, parts, body) : writeRing(header, parts);
}

bool ServerLink::writeRing(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts) {
  const int64_t deadline = monotonicNs() + patienceNs_;
  while (!replies_.hasSpace(header.bytes)) {
    replies_.sleepForSpace(header.bytes, 10'000'000);
    pollfd look{socket_.get(), POLLRDHUP, 0};
    if (monotonicNs() > deadline || (::poll(&look, 1, 0) == 1 && look.revents != 0)) return false;
  }
  std::byte* place = replies_.place();
  std::memcpy(place, &header, sizeof(header));
  place += sizeof(header);
  for (const auto& part : parts) {
    if (part.empty()) continue;
    std::memcpy(place, part.data(), part.size());
    place += part.size();
  }
  replies_.advance(header.bytes);
  replies_.publish();
  return true;
}

bool ServerLink::writeSocket(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts,
                             size_t body) {
  constexpr std::byte zeros[8]{};
  SendRuns runs;
  runs.add(std::as_bytes(std::span(&header, 1)));
  for (const auto& part : parts) runs.add(part);
  runs.add(std::span(zeros).first(wire::padded(body) - body));
  while (!runs.done()) {
    if (runs.send(socket_.get()) || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    pollfd wait{socket_.get(), POLLOUT, 0};
    if (::poll(&wait, 1, static_cast<int>(patienceNs_ / 1'000'000)) <= 0) return false;
  }
  return true;
}

void ServerLink::end(const std::string& reason) {
  patienceNs_ = kEndPatienceNs;
  const auto text = std::as_bytes(std::span(reason)).first(std::min(reason.size(), kMaxMessage));
  const bool sent = reply(wire::ReplyKind::kEnd, 0, 0, 0, text);
  if (!remote_ || !sent) return;
  // Closing a connection on which something still comes in would take the reason back that is on its way out.
  ::shutdown(socket_.get(), SHUT_WR);
  const int64_t deadline = monotonicNs() + kEndPatienceNs;
  std::vector<std::byte> dropped(size_t{64} << 10);
  for (int64_t left = kEndPatienceNs; left > 0; left = deadline - monotonicNs()) {
    pollfd wait{socket_.get(), POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(left / 1'000'000)) <= 0) return;
    const ssize_t n = ::recv(socket_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

}  // namespace millpond
