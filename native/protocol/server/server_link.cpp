// SPDX-License-Identifier: Apache-2.0
#include "protocol/server/server_link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "protocol/gen/api_hash.h"
#include "protocol/handshake/handshake.h"
#include "protocol/transport/socket.h"

namespace millpond {
namespace {

/// Timeout for a client that reads no reply.
constexpr int64_t kReplyPatienceNs = 60'000'000'000;
/// A client that does not read cannot delay the end of a session.
constexpr int64_t kEndPatienceNs = 200'000'000;
/// The most bytes kept for a client beside the ring before the worker waits for its acknowledgements; and the limit if
/// these cannot arrive because they are behind commands for which there is no room.
constexpr size_t kManyOwnBytes = size_t{32} << 20;
constexpr size_t kMostOwnBytes = size_t{1} << 30;
constexpr size_t kKeepStep = size_t{16} << 20;
constexpr int64_t kLookNs = 100'000'000;
/// Replies are collected up to this size; more would delay a client that could already copy them.
constexpr size_t kMostCollectedBytes = size_t{32} << 10;
constexpr size_t kJournalPiece = size_t{32} << 10;
/// A closed connection is mostly that of a killed process, whose memory the next process wants: the worker waits for
/// this long, unless the client requested a longer grace period than the default.
constexpr int64_t kClosedGraceNs = 10'000'000'000;
constexpr int64_t kDefaultGraceNs = 60'000'000'000;

}  // namespace

ServerLink::ServerLink(Channel channel, SessionMemory memory, bool remote, uint32_t graceSeconds)
    : channel_(std::move(channel)),
      wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      memory_(std::move(memory)),
      remote_(remote),
      commands_(memory_.control().submit, memory_.submit(), wire::kSubmitBytes),
      incoming_(memory_.control().submit, memory_.submit(), wire::kSubmitBytes),
      replies_(memory_.control().reply, memory_.reply(), wire::kReplyBytes),
      patienceNs_(kReplyPatienceNs),
      outgoing_(RingConsumer(memory_.control().reply, memory_.reply(), wire::kReplyBytes)),
      graceNs_(remote ? int64_t{graceSeconds} * 1'000'000'000 : 0),
      door_(std::make_unique<Door>()) {}

// Receiving

ServerLink::Next ServerLink::receive() {
  // The thread that noticed it may only have checked for new commands.
  if (isBroken_) return Next::kBroken;
  if (door_->isOffered.load(std::memory_order_acquire))
    if (const Next got = takeOffers(); got != Next::kNothing) return got;
  if (!isAway_ && lanes_ && lanes_->haveEnded()) return receiveWithoutLane();
  if (!isAway_) return receiveBytes();
  if (monotonicNs() < returnBy_) return Next::kNothing;
  problem_ = "its connection was lost, and the client did not come back within " +
             std::to_string(awaitedNs_ / 1'000'000'000) + " s";
  return Next::kGone;
}

ServerLink::Next ServerLink::receiveBytes() {
  size_t room = incoming_.space();
  if (room == 0) return Next::kNothing;
  const ssize_t n = channel_.receive({incoming_.place(), std::min(room, size_t{1} << 20)});
  if (n == 0) return lose("it was closed", true);
  if (n < 0)
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Next::kNothing
                                                                     : lose(std::strerror(errno), errno == ECONNRESET);
  incoming_.advance(static_cast<size_t>(n));
  incoming_.publish();
  return Next::kFrame;
}

ServerLink::Next ServerLink::next(Frame& frame) {
  if (!sendCollected()) {
    problem_ = "the client reads no replies";
    return Next::kGone;
  }
  for (;;) {
    size_t available = commands_.available(sizeof(wire::CommandHeader));
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
      const size_t onLane = tail_ ? wire::padded(tail_->bytes) : 0;
      if (tail_ && (frame.header.op == wire::kLinkOp || bytes < sizeof(frame.header) + onLane ||
                    bytes - onLane > sizeof(frame.header) + wire::kHeadBytes)) {
        problem_ = "a command of " + std::to_string(bytes) + " bytes with " + std::to_string(onLane) + " on a lane";
        return Next::kBroken;
      }
      const size_t inRing = bytes - onLane;
      if (inRing > available) available = commands_.available(inRing);
      if (inRing <= available && !awaitsLane()) {
        frame.begin = commands_.position();
        frame.end = frame.begin + inRing;
        frame.start = taken();
        frame.keeper.reset();
        if (tail_) return takeFromLane(frame, inRing);
        frame.take(commands_.data() + sizeof(frame.header), bytes - sizeof(frame.header));
        commands_.skip(bytes);
        if (graceNs_ == 0) return Next::kFrame;
        if (frame.header.op != wire::kLinkOp) {
          if (taken() - toldReceived_ >= wire::kAcknowledgeBytes) tellReceived();
          return Next::kFrame;
        }
        linkBytes_ += bytes;
        if (!takeLinkWord(wordOf(frame.body()))) return isLeaving_ ? Next::kGone : Next::kBroken;
        continue;
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
  if (!sendCollected()) return true;  // `next` reports it
  if (awaitsLane()) {
    const Next got = receive();
    return got == Next::kGone || got == Next::kBroken || !awaitsLane();
  }
  // With a full ring a command is ready already, or `next` detects that it never will be.
  return incoming_.space() == 0 || receive() != Next::kNothing;
}

void ServerLink::sleep(int64_t timeoutNs) {
  if (!remote_) {
    commands_.sleep(timeoutNs, &door_->isWoken);
    door_->isWoken.store(false, std::memory_order_seq_cst);
    return;
  }
  if (!sendCollected()) return;
  const bool hasRoom = incoming_.space() != 0;
  if (!isAway_ && hasRoom && channel_.holdsBytes()) return;
  if (tail_ && !awaitsLane()) return;
  const short events = hasRoom ? POLLIN : POLLRDHUP;
  pollfd look[2] = {{isAway_ ? -1 : channel_.socket(), events, 0}, {wakeup_.get(), POLLIN, 0}};
  if (laneEndedNs_ != 0) timeoutNs = timeoutNs < 0 ? kLaneLookNs : std::min(timeoutNs, kLaneLookNs);
  const timespec timeout{timeoutNs / 1'000'000'000, timeoutNs % 1'000'000'000};
  ::ppoll(look, 2, timeoutNs < 0 ? nullptr : &timeout, nullptr);
  if (look[1].revents & POLLIN) forgetWake();
}

void ServerLink::forgetWake() {
  uint64_t count;
  if (::read(wakeup_.get(), &count, sizeof(count)) < 0) return;  // another waker's count was read already
}

void ServerLink::wake() {
  if (remote_) {
    const uint64_t one = 1;
    if (::write(wakeup_.get(), &one, sizeof(one)) < 0) return;  // the counter is full: it is awake
    return;
  }
  door_->isWoken.store(true, std::memory_order_seq_cst);
  wakeConsumer(memory_.control().submit);
}

void ServerLink::giveUp() {
  door_->hasGivenUp.store(true, std::memory_order_release);
  wake();
}

// Sending

bool ServerLink::write(wire::ReplyHeader header, std::span<const std::span<const std::byte>> parts,
                       std::span<const std::byte> lent) {
  size_t body = 0;
  for (const auto& part : parts) body += part.size();
  const size_t bytes = sizeof(header) + wire::padded(body) + wire::padded(lent.size());
  if (bytes > wire::kMaxReplyBytes) {
    problem_ = "a reply of " + std::to_string(bytes) + " bytes, and none may have more than " +
               std::to_string(wire::kMaxReplyBytes);
    return false;
  }
  header.bytes = static_cast<uint32_t>(bytes);
  if (!remote_) return writeRing(header, parts);
  if (!waitForRoom()) return false;
  const bool isInRing = keep(header, parts, sizeof(header) + wire::padded(body));
  const bool mayUseLane = isInRing && lent.size() >= wire::kLaneBytes && lent.size() <= wire::kChunkBytes;
  if (!lent.empty()) outgoing_.lend(replies_.head(), lent, mayUseLane ? sizeof(header) + wire::padded(body) : 0);
  collectedBytes_ += bytes;
  return (collects_ && collectedBytes_ < kMostCollectedBytes) || transmit();
}

bool ServerLink::writeRing(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts) {
  const int64_t deadline = monotonicNs() + patienceNs_;
  while (!replies_.hasSpace(header.bytes)) {
    replies_.sleepForSpace(header.bytes, 10'000'000);
    if (replies_.isBroken()) {
      problem_ = "the reply ring's tail is not between where it was and the ring's head";
      return false;
    }
    pollfd look{channel_.socket(), POLLRDHUP, 0};
    if (monotonicNs() > deadline || (::poll(&look, 1, 0) == 1 && look.revents != 0)) return false;
  }
  std::byte* place = replies_.place();
  std::byte* const end = place + header.bytes;
  std::memcpy(place, &header, sizeof(header));
  place += sizeof(header);
  for (const auto& part : parts) {
    if (part.empty()) continue;
    std::memcpy(place, part.data(), part.size());
    place += part.size();
  }
  // A text that ends within a word must not continue with bytes of an earlier reply.
  std::fill(place, end, std::byte{0});
  replies_.advance(header.bytes);
  replies_.publish();
  return true;
}

bool ServerLink::keep(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts,
                      size_t bytes) {
  std::vector<std::byte> own;
  const bool fits = replies_.hasSpace(bytes);
  if (!fits) own.resize(bytes);
  std::byte* place = fits ? replies_.place() : own.data();
  std::byte* const end = place + bytes;
  std::memcpy(place, &header, sizeof(header));
  place += sizeof(header);
  for (const auto& part : parts) {
    if (part.empty()) continue;
    std::memcpy(place, part.data(), part.size());
    place += part.size();
  }
  std::fill(place, end, std::byte{0});
  if (!fits) {
    outgoing_.append(replies_.head(), std::move(own));
    return false;
  }
  replies_.advance(bytes);
  replies_.publish();
  return true;
}

bool ServerLink::sendCollected() {
  if (collectedBytes_ != 0 && !isStuck_) isStuck_ = !transmit();
  return !isStuck_;
}

bool ServerLink::transmit() {
  collectedBytes_ = 0;
  while (!isAway_ && (!word_.empty() || outgoing_.pending())) {
    useLane();
    SendRuns runs;
    runs.add(word_);
    outgoing_.collect(runs, lanes_ && lanes_->areOpen());
    const size_t all = runs.left();
    if (runs.send(channel_)) {
      const size_t gone = all - runs.left();
      const size_t ofWord = std::min(gone, word_.size());
      word_.erase(word_.begin(), word_.begin() + static_cast<ptrdiff_t>(ofWord));
      outgoing_.sent(gone - ofWord);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      if (lose(std::strerror(errno), errno == ECONNRESET || errno == EPIPE) == Next::kGone) return false;
      continue;
    }
    pollfd wait[2] = {{channel_.socket(), POLLOUT, 0}, {graceNs_ ? wakeup_.get() : -1, POLLIN, 0}};
    if (::poll(wait, 2, static_cast<int>(patienceNs_ / 1'000'000)) <= 0) return false;
    // Other causes of the wake-up are handled before the next sleep.
    if (wait[1].revents) forgetWake();
    if (wait[1].revents && door_->isOffered.load(std::memory_order_acquire))
      lose("the client has opened another connection");
  }
  if (graceNs_ == 0) outgoing_.acknowledge(outgoing_.position());
  return true;
}

bool ServerLink::waitForRoom() {
  const int64_t deadline = monotonicNs() + patienceNs_;
  while (outgoing_.ownBytes() >= kManyOwnBytes) {
    if (!sendCollected()) return false;
    lookAhead(false);
    if (outgoing_.ownBytes() < kManyOwnBytes) break;
    if (door_->hasGivenUp.load(std::memory_order_acquire)) return false;
    if (!isAway_ && incoming_.space() == 0) return mayKeepMore();
    const Next got = receive();
    if (got == Next::kGone || got == Next::kBroken) return false;
    if (got == Next::kFrame) continue;
    if (!isAway_ && monotonicNs() > deadline) return false;
    sleep(kLookNs);
  }
  if (beyond_ != 0) mayKeep_(beyond_ = 0);
  return true;
}

bool ServerLink::mayKeepMore() {
  if (outgoing_.ownBytes() >= kMostOwnBytes) return false;
  // With the next reply, in steps.
  const size_t beyond =
      (outgoing_.ownBytes() - kManyOwnBytes + wire::kMaxReplyBytes) / kKeepStep * kKeepStep + kKeepStep;
  if (!mayKeep_ || beyond == beyond_) return true;
  if (!mayKeep_(beyond)) {
    problem_ = "the client reads no replies, and " + std::to_string(outgoing_.ownBytes() >> 20) +
               " MiB of them are kept for it: its claim has no host memory for more";
    return false;
  }
  beyond_ = beyond;
  return true;
}

// The link

ServerLink::Next ServerLink::lose(const std::string& why, bool isClosed) {
  if (graceNs_ == 0 || isLeaving_) return Next::kGone;
  isAway_ = true;
  awaitedNs_ = isClosed && graceNs_ <= kDefaultGraceNs ? std::min(graceNs_, kClosedGraceNs) : graceNs_;
  returnBy_ = monotonicNs() + awaitedNs_;
  word_.clear();
  parkAt_.reset();
  // A frame with data on a lane is incomplete until the client is back.
  endLanes();
  ::shutdown(channel_.socket(), SHUT_RDWR);
  if (onLink_)
    onLink_("the connection of the client was lost (" + why + "); waiting for it for up to " +
            std::to_string(awaitedNs_ / 1'000'000'000) + " s");
  return Next::kNothing;
}

void ServerLink::offer(Channel channel, uint64_t received) {
  {
    std::lock_guard lock(door_->mutex);
    door_->offer = Offer{std::move(channel), received};
    door_->isOffered.store(true, std::memory_order_release);
  }
  wake();
}

ServerLink::Next ServerLink::resume(Offer offer) {
  endLanes();
  const Received whole = lookAhead(true);
  tail_.reset();
  if (!outgoing_.resumeAt(offer.received)) {
    problem_ =
        "the client came back for replies behind offset " + std::to_string(offer.received) + ", which are not the next";
    isBroken_ = true;
    return Next::kBroken;
  }
  // With the same descriptor number, so that another thread that waits for the socket never gets another file's.
  if (!channel_.takeOver(std::move(offer.channel))) return lose(std::strerror(errno));
  incoming_.retract(whole.end);
  commands_.retracted();
  toldReceived_ = whole.end - linkBytes_ - whole.linkBytes + laneBytes_;
  word_.clear();
  isAway_ = false;
  const Welcome welcome{wire::kProtocolVersion, kApiHash, Admission::kWelcome, "", {}, 0, 0, toldReceived_, {}};
  if (auto sent = sendAll(channel_, encode(welcome)); !sent) return lose(sent.error().message);
  if (onLink_) onLink_("the client is back");
  return transmit() ? Next::kFrame : Next::kGone;
}

ServerLink::Received ServerLink::lookAhead(bool stopsAtLanes) {
  Received whole{commands_.position(), 0};
  const std::byte* at = commands_.data();
  size_t left = commands_.available();
  size_t onLane = tail_ ? wire::padded(tail_->bytes) : 0;
  wire::CommandHeader header;
  while (left >= sizeof(header) && (!stopsAtLanes || onLane == 0)) {
    std::memcpy(&header, at, sizeof(header));
    // The thread that takes a malformed frame refuses it.
    if (header.bytes < sizeof(header) + onLane || header.bytes > wire::kMaxFrameBytes || header.bytes % 8 != 0) break;
    const size_t bytes = header.bytes - onLane;
    if (bytes > left) break;
    onLane = 0;
    if (header.op == wire::kLinkOp) {
      const wire::LinkWord word = wordOf({at + sizeof(header), bytes - sizeof(header)});
      const bool isOnLane = word.message == wire::LinkMessage::kOnLane;
      if (isOnLane ? stopsAtLanes || word.received > wire::kChunkBytes : !takeLinkWord(word)) break;
      if (isOnLane) onLane = wire::padded(word.received);
      whole.linkBytes += bytes;
    }
    at += bytes;
    left -= bytes;
    whole.end += bytes;
  }
  return whole;
}

wire::LinkWord ServerLink::wordOf(std::span<const std::byte> body) {
  wire::LinkWord word{};
  if (body.size() == sizeof(word)) std::memcpy(&word, body.data(), sizeof(word));
  return word;
}

bool ServerLink::takeLinkWord(const wire::LinkWord& word) {
  switch (word.message) {
    case wire::LinkMessage::kGoodbye: return isLeaving_ = true;
    case wire::LinkMessage::kParked:
      isParked_ = parkAt_ && *parkAt_ == taken() && word.received == outgoing_.end();
      if (!isParked_) problem_ = "the client parks a session that must not be parked";
      return isParked_;
    case wire::LinkMessage::kOnLane:
    case wire::LinkMessage::kLanes: return takeLaneWord(word);
    case wire::LinkMessage::kReceived:
      // Read ahead; it will be taken again in order.
      if (word.received <= outgoing_.acknowledged() || outgoing_.acknowledge(word.received)) return true;
      break;
    case wire::LinkMessage::kPark: break;
  }
  problem_ = "a malformed frame of the link";
  return false;
}

void ServerLink::tellReceived() {
  if (isAway_) return;
  if (word_.empty()) toldReceived_ = taken();
  say(wire::LinkMessage::kReceived, toldReceived_);
}

void ServerLink::say(wire::LinkMessage message, uint64_t received) {
  if (word_.empty()) {
    const wire::ReplyHeader header{sizeof(header) + sizeof(wire::LinkWord), wire::ReplyKind::kLink, 0, 0, 0};
    const wire::LinkWord word{message, 0, received};
    word_.resize(header.bytes);
    std::memcpy(word_.data(), &header, sizeof(header));
    std::memcpy(word_.data() + sizeof(header), &word, sizeof(word));
  }
  // If the socket is full it goes with the next reply.
  SendRuns runs;
  runs.add(word_);
  if (runs.send(channel_)) word_.erase(word_.begin(), word_.end() - static_cast<ptrdiff_t>(runs.left()));
}

void ServerLink::leaveJournal(std::span<const std::byte> journal) {
  const uint64_t bytes = journal.size();
  std::byte* place = memory_.stagingRun().data();
  std::memcpy(place, &bytes, sizeof(bytes));
  if (!journal.empty()) std::memcpy(place + sizeof(bytes), journal.data(), journal.size());
}

bool ServerLink::sendJournal(std::span<const std::byte> journal) {
  uint32_t index = 0;
  do {
    const auto piece = journal.first(std::min(journal.size(), kJournalPiece));
    journal = journal.subspan(piece.size());
    const size_t padding = wire::padded(piece.size()) - piece.size();
    if (!reply(wire::ReplyKind::kJournal, static_cast<uint16_t>(padding), index++, 0, piece)) return false;
  } while (!journal.empty());
  return sendCollected();
}

bool ServerLink::park(std::span<const std::byte> journal) {
  if (isParked_) return true;
  if (commands_.available() != 0 || commands_.released() != commands_.position()) return false;
  if (journal.size() > wire::kMaxJournalBytes) return false;
  if (!remote_) {
    if (replies_.space() != replies_.capacity()) return false;
    leaveJournal(journal);
    return isParked_ = commands_.close();
  }
  if (!sendCollected()) return false;
  const auto isReady = [this] { return !isAway_ && !isLeaving_ && !outgoing_.pending() && word_.empty(); };
  if (graceNs_ == 0 || parkAt_ == taken() || !isReady() || !sendJournal(journal) || !isReady()) return false;
  parkAt_ = toldReceived_ = taken();
  say(wire::LinkMessage::kPark, toldReceived_);
  return false;
}

void ServerLink::end(const std::string& reason) {
  if (isAway_) return;
  patienceNs_ = kEndPatienceNs;
  const auto text = std::as_bytes(std::span(reason)).first(std::min(reason.size(), kMaxMessage));
  const bool sent = reply(wire::ReplyKind::kEnd, 0, 0, 0, text) && sendCollected();
  if (!remote_ || !sent || isAway_) return;
  // Closing a connection on which data still arrives would discard the reason that is being sent.
  ::shutdown(channel_.socket(), SHUT_WR);
  const int64_t deadline = monotonicNs() + kEndPatienceNs;
  std::vector<std::byte> dropped(size_t{64} << 10);
  for (int64_t left = kEndPatienceNs; left > 0; left = deadline - monotonicNs()) {
    if (channel_.wait(POLLIN, static_cast<int>(left / 1'000'000)) == 0) return;
    const ssize_t n = channel_.receive(dropped);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

}  // namespace millpond
