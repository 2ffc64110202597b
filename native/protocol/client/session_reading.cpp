// SPDX-License-Identifier: Apache-2.0
// The receiving part of a client's session: replies, data and link frames, from the ring or the socket.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "protocol/client/session_client.h"
#include "protocol/rings/bulk_copy.h"
#include "protocol/transport/socket.h"

namespace millpond {
namespace {

/// A copy from the device of this size leaves little of its data in the caches.
constexpr size_t kLargeCopyBytes = size_t{4} << 20;
/// How long the rest of a frame may take once its header is there.
constexpr int kFrameTimeoutMs = 60'000;

}  // namespace

void Session::pump(const Waiter* until, Sender sender) {
  for (;;) {
    const Pumped got = remote_ ? pumpSocket(sender) : pumpRing();
    if (got == Pumped::kBroken) lose(endReason_.empty() ? "the connection to the worker broke" : endReason_);
    if (got == Pumped::kCut) cutWhileReading("the worker closed it");
    acknowledge(sender);
    if (!until || lost() || isDown_.load(std::memory_order_acquire)) return;
    if (until->isDone()) return;
    if (got == Pumped::kNothing) sleepForReplies();
  }
}

void Session::sleepForReplies() {
  if (!remote_) {
    if (spin_.until([&] { return replies_.available() != 0; })) return;
    replies_.sleep(kLivenessNs);
    spin_.slept();
    // Checked again: the worker sends its last messages before it exits.
    if (replies_.available() == 0 && peerGone() && replies_.available() == 0) lose("the worker is gone");
    return;
  }
  Inbox::Got got = Inbox::Got::kNothing;
  if (!spin_.until([&] { return (got = inbox_.receive(channel_)) != Inbox::Got::kNothing; })) {
    channel_.wait(POLLIN, 1000);
    spin_.slept();
  }
  if (got == Inbox::Got::kEnd) cutWhileReading("the worker closed it");
}

Session::Pumped Session::pumpRing() {
  const size_t available = replies_.available();
  if (available == 0) return Pumped::kNothing;
#ifdef __SANITIZE_THREAD__
  // Everything sent by any thread here before the worker's reply happens before that reply; the thread sanitizer sees
  // one process.
  (void)control().submit.head.load(std::memory_order_acquire);
#endif
  if (available > replies_.capacity()) return Pumped::kBroken;
  size_t left = available;
  while (left >= sizeof(wire::ReplyHeader)) {
    wire::ReplyHeader header;
    std::memcpy(&header, replies_.data(), sizeof(header));
    if (header.bytes < sizeof(header) || header.bytes > left || header.bytes % 8 != 0) return Pumped::kBroken;
    if (!accept(header, {replies_.data() + sizeof(header), header.bytes - sizeof(header)})) return Pumped::kBroken;
    replies_.skip(header.bytes);
    left -= header.bytes;
  }
  if (left != 0) return Pumped::kBroken;  // frames are published whole
  replies_.release(replies_.position());
  return Pumped::kSome;
}

Session::Pumped Session::pumpSocket(Sender sender) {
  bool some = false;
  for (int64_t deadline = 0;;) {
    const uint32_t seen = lanes_.changes();
    const Pumped got = isTorn_ ? pumpTorn() : pumpFrames();
    if (got == Pumped::kCut || got == Pumped::kBroken) {
      dropComing();
      return got;
    }
    const bool isSettled = settleLanes();
    some = some || isSettled || got == Pumped::kSome;
    // Frames behind those that are complete now may be in the inbox. The worker's memory for unacknowledged data is limited.
    if (isSettled) acknowledge(sender);
    if (isSettled) continue;
    if (lanes_.empty()) return some ? Pumped::kSome : Pumped::kNothing;
    const int64_t now = monotonicNs();
    if (got == Pumped::kSome || deadline == 0) deadline = now + int64_t{kFrameTimeoutMs} * 1'000'000;
    if (lanes_.haveEnded() || now > deadline) {
      dropComing();
      return Pumped::kCut;
    }
    if (got == Pumped::kNothing) lanes_.awaitChange(seen);
  }
}

Session::Pumped Session::pumpFrames() {
  if (inbox_.pending().size() < sizeof(wire::ReplyHeader)) {
    const Inbox::Got got = inbox_.receive(channel_);
    if (got == Inbox::Got::kEnd) return Pumped::kCut;
    if (got == Inbox::Got::kNothing) return Pumped::kNothing;
  }
  bool some = false;
  while (inbox_.pending().size() >= sizeof(wire::ReplyHeader)) {
    wire::ReplyHeader header;
    std::memcpy(&header, inbox_.pending().data(), sizeof(header));
    if (header.bytes < sizeof(header) || header.bytes % 8 != 0) return Pumped::kBroken;
    const size_t body = header.bytes - sizeof(header);
    const bool isData = header.kind == wire::ReplyKind::kData || header.kind == wire::ReplyKind::kLanding;
    const bool isOfLink = header.kind == wire::ReplyKind::kLink;
    if (lanes_.announced() != 0 && !isOfLink) {
      if (!isData) return Pumped::kBroken;
      inbox_.skip(sizeof(header));
      if (const Pumped got = receiveAnnounced(header); got != Pumped::kSome) return got;
      some = true;
      continue;
    }
    // Frames are taken in order, except for the last one of all.
    if (!lanes_.empty() && !isOfLink && header.kind != wire::ReplyKind::kEnd)
      return some ? Pumped::kSome : Pumped::kNothing;
    if (isData) {
      inbox_.skip(sizeof(header));
      if (const Pumped got = receiveData(header); got != Pumped::kSome) return got;
    } else {
      if (header.bytes > wire::kMaxReplyBytes) return Pumped::kBroken;
      if (inbox_.pending().size() < header.bytes) {
        const Inbox::Got got = inbox_.receive(channel_, header.bytes);
        if (got == Inbox::Got::kEnd) return Pumped::kCut;
        if (got == Inbox::Got::kNothing) return some ? Pumped::kSome : Pumped::kNothing;
        continue;
      }
      if (!accept(header, inbox_.pending().subspan(sizeof(header), body))) return Pumped::kBroken;
      inbox_.skip(header.bytes);
    }
    if (!isOfLink) received_.store(received_.load(std::memory_order_relaxed) + header.bytes, std::memory_order_relaxed);
    some = true;
  }
  return some ? Pumped::kSome : Pumped::kNothing;
}

bool Session::take(std::span<std::byte> to) {
  const size_t buffered = std::min(to.size(), inbox_.pending().size());
  if (buffered) std::memcpy(to.data(), inbox_.pending().data(), buffered);
  inbox_.skip(buffered);
  return buffered == to.size() ||
         static_cast<bool>(millpond::receiveExactly(channel_, to.subspan(buffered), kFrameTimeoutMs));
}

Session::Pumped Session::receiveData(const wire::ReplyHeader& header) {
  size_t left = header.bytes - sizeof(header);
  if (header.kind == wire::ReplyKind::kData) {
    if (header.op > 7 || header.op > left) return Pumped::kBroken;
    const std::span<std::byte> to = destination(header, left - header.op);
    if (to.empty()) return Pumped::kBroken;
    const Pumped got = receiveBody(to, left);
    // It will be resent as a whole.
    if (got == Pumped::kCut) waiters_.find(header.request)->answer.dataBytes -= to.size();
    return got;
  }
  wire::Landing landing{};
  if (left < sizeof(landing)) return Pumped::kBroken;
  if (!take(std::as_writable_bytes(std::span(&landing, 1)))) return Pumped::kCut;
  left -= sizeof(landing);
  if (landing.bytes > left || wire::padded(landing.bytes) != left) return Pumped::kBroken;
  std::span<std::byte> to;
  if (landing.bytes && mayLand_ && mayLand_(landing.hostAddress, landing.bytes))
    to = {reinterpret_cast<std::byte*>(landing.hostAddress), landing.bytes};
  const Pumped got = receiveBody(to, left);
  if (got == Pumped::kSome && landing.number && onLanded_) onLanded_(landing.number);
  return got;
}

Session::Pumped Session::receiveBody(std::span<std::byte> to, size_t frameBytesLeft) {
  if (!to.empty() && !take(to)) return Pumped::kCut;
  // Padding, or bytes for memory that the program has freed.
  std::byte dropped[4096];
  for (size_t left = frameBytesLeft - to.size(); left;) {
    const size_t n = std::min(left, sizeof(dropped));
    if (!take(std::span(dropped).first(n))) return Pumped::kCut;
    left -= n;
  }
  return Pumped::kSome;
}

std::span<std::byte> Session::destination(const wire::ReplyHeader& header, size_t bytes) {
  Waiter* w = waiters_.find(header.request);
  if (!w || w->answer.data.size() - w->answer.dataBytes < bytes) return {};
  const auto to = w->answer.data.subspan(w->answer.dataBytes, bytes);
  w->answer.dataBytes += bytes;
  return to;
}

bool Session::accept(const wire::ReplyHeader& header, std::span<const std::byte> body) {
  switch (header.kind) {
    case wire::ReplyKind::kResult: {
      Waiter* w = waiters_.find(header.request);
      if (!w) return false;
      Answer& answer = w->answer;
      answer.bodyBytes = body.size();
      const size_t n = std::min(answer.body.size(), body.size());
      if (n) std::memcpy(answer.body.data(), body.data(), n);
      if (answer.whole) answer.whole->assign(body.begin(), body.end());
      // Everything sent before the request has arrived, too.
      if (const uint64_t end = w->end.load(std::memory_order_relaxed);
          graceSeconds_ != 0 && end > peerReceived_.load(std::memory_order_relaxed))
        peerReceived_.store(end, std::memory_order_release);
      waiters_.finish(header.request, header.result);
      return true;
    }
    case wire::ReplyKind::kChunk: {
      wire::ChunkReady ready;
      if (remote_ || body.size() != sizeof(ready)) return false;
      std::memcpy(&ready, body.data(), sizeof(ready));
      if (ready.chunk >= wire::kStagingChunks || ready.bytes > wire::kChunkBytes) return false;
      const auto to = destination(header, ready.bytes);
      if (to.empty() || to.size() != ready.bytes) return false;
      const std::span<const std::byte> from(memory_.chunk(ready.chunk), ready.bytes);
      if (waiters_.find(header.request)->answer.data.size() >= kLargeCopyBytes)
        copyPastCaches(to.data(), from);
      else
        std::memcpy(to.data(), from.data(), from.size());
      control().chunkBusy[ready.chunk].store(0, std::memory_order_seq_cst);
      // The worker may sleep until a chunk is free; it sleeps as the consumer of commands.
      wakeConsumer(control().submit);
      return true;
    }
    case wire::ReplyKind::kFailure: {
      wire::FailureReport report;
      if (body.size() != sizeof(report)) return false;
      std::memcpy(&report, body.data(), sizeof(report));
      if (remote_) control().failures.keep(header.result, static_cast<uint16_t>(report.context));
      if (onFailure_) onFailure_(header.result, header.op, report.position);
      return true;
    }
    case wire::ReplyKind::kOutput:
      if (header.op > 7 || header.op > body.size() || header.result < 0 || header.result > 1) return false;
      if (onOutput_) onOutput_(static_cast<wire::OutputStream>(header.result), body.first(body.size() - header.op));
      return true;
    case wire::ReplyKind::kEnd:
      endReason_.assign(reinterpret_cast<const char*>(body.data()), body.size());
      endReason_.resize(::strnlen(endReason_.c_str(), endReason_.size()));
      return false;
    case wire::ReplyKind::kLanding: {
      wire::Landing landing{};
      if (remote_ || body.size() < sizeof(landing)) return false;
      std::memcpy(&landing, body.data(), sizeof(landing));
      const auto data = body.subspan(sizeof(landing));
      if (landing.bytes > data.size() || wire::padded(landing.bytes) != data.size()) return false;
      if (landing.bytes && mayLand_ && mayLand_(landing.hostAddress, landing.bytes))
        std::memcpy(reinterpret_cast<std::byte*>(landing.hostAddress), data.data(), landing.bytes);
      if (landing.number && onLanded_) onLanded_(landing.number);
      return true;
    }
    case wire::ReplyKind::kLink: return acceptLinkWord(body);
    case wire::ReplyKind::kJournal:
      if (!remote_ || !canPark_ || header.op > 7 || header.op > body.size()) return false;
      if (header.request == 0) journal_.clear();
      journal_.insert(journal_.end(), body.begin(), body.end() - header.op);
      return journal_.size() <= wire::kMaxJournalBytes;
    case wire::ReplyKind::kData: return false;  // only a socket carries these
  }
  return false;
}

bool Session::acceptLinkWord(std::span<const std::byte> body) {
  wire::LinkWord word{};
  if (graceSeconds_ == 0 || body.size() != sizeof(word)) return false;
  std::memcpy(&word, body.data(), sizeof(word));
  if (word.message == wire::LinkMessage::kOnLane) return lanes_.announce(word.lane, word.received);
  const bool isPark = word.message == wire::LinkMessage::kPark && canPark_;
  if (word.message != wire::LinkMessage::kReceived && !isPark) return false;
  const uint64_t received = base_ + word.received;
  // It may be lower than the number that the worker got before it had any bytes of this stream.
  if (static_cast<int64_t>(received - peerReceived_.load(std::memory_order_relaxed)) > 0)
    peerReceived_.store(received, std::memory_order_release);
  if (isPark) {
    askedAt_.store(received, std::memory_order_relaxed);
    isAsked_.store(true, std::memory_order_release);
  }
  return true;
}

void Session::readOutAndLose(const std::string& reason) {
  std::lock_guard lock(readMutex_);
  while (!lost()) {
    const Pumped got = remote_ ? pumpSocket(Sender::kThis) : pumpRing();
    if (got != Pumped::kSome) lose(endReason_.empty() ? reason : endReason_);
  }
}

bool Session::peerGone() const {
  pollfd look{channel_.socket(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

void Session::lose(const std::string& reason) {
  if (lost()) return;
  // Threads that see the loss return to the program, whose memory the lanes must not use then.
  lanes_.stop();
  if (lost_.exchange(true)) return;
  // Threads that read or send stop immediately, and the worker sees that the client is gone.
  ::shutdown(channel_.socket(), SHUT_RDWR);
  if (onLost_) onLost_(reason);
  waiters_.finishAll(kSessionLost);
}

}  // namespace millpond
