// SPDX-License-Identifier: Apache-2.0
// The lanes of a worker's link: accepts them, and takes and sends the data of frames over them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/gen/api_hash.h"
#include "protocol/handshake/handshake.h"
#include "protocol/server/server_link.h"

namespace millpond {
namespace {

/// How long the end of a lane waits for a goodbye.
constexpr int64_t kGoodbyeNs = 50'000'000;

}  // namespace

ServerLink::Next ServerLink::receiveWithoutLane() {
  const int64_t now = monotonicNs();
  if (laneEndedNs_ == 0) laneEndedNs_ = now;
  const Next got = receiveBytes();
  if (got != Next::kNothing || isAway_ || isLeaving_ || incoming_.space() == 0) return got;
  if (now - laneEndedNs_ < kGoodbyeNs) return Next::kNothing;
  // The client may use them as soon as all are there.
  if (lanes_->size() == lanes_->count()) return lose("one of its lanes ended");
  endLanes();
  return Next::kNothing;
}

void ServerLink::offerLane(Channel channel, uint32_t lane, uint32_t count) {
  {
    std::lock_guard lock(door_->mutex);
    // The thread of the session may be in a long call of the driver meanwhile.
    if (door_->lanes.size() == wire::kMaxLanes) door_->lanes.erase(door_->lanes.begin());
    door_->lanes.push_back({std::move(channel), lane, count});
    door_->isOffered.store(true, std::memory_order_release);
  }
  wake();
}

ServerLink::Next ServerLink::takeOffers() {
  std::optional<Offer> offer;
  std::vector<LaneOffer> lanes;
  {
    std::lock_guard lock(door_->mutex);
    door_->isOffered.store(false, std::memory_order_relaxed);
    offer = std::exchange(door_->offer, std::nullopt);
    lanes = std::exchange(door_->lanes, {});
  }
  for (LaneOffer& each : lanes) takeLane(std::move(each));
  return offer ? resume(std::move(*offer)) : Next::kNothing;
}

void ServerLink::takeLane(LaneOffer offer) {
  Welcome welcome{wire::kProtocolVersion, kApiHash, Admission::kWelcome, "", {}};
  const auto answer = [&] { return bool(sendAll(offer.channel, encode(welcome), 1000)); };
  const auto refuse = [&](Admission admission, const char* why) {
    welcome.admission = admission;
    welcome.message = why;
    // Whether or not the client reads it, it has no lane.
    (void)answer();
  };
  if (isAway_ || graceNs_ == 0 || isLeaving_) return refuse(Admission::kNoSession, "the session has no connection");
  // The client opens all its lanes again if it could not open one of them.
  if (offer.lane == 0 && lanes_ && !lanes_->areOpen()) endLanes();
  if (offer.lane != (lanes_ ? lanes_->size() : 0) || offer.lane >= offer.count || offer.count > wire::kMaxLanes ||
      (lanes_ && offer.count != lanes_->count()))
    return refuse(Admission::kBusy, "the session does not expect this lane");
  if (!lanes_) {
    auto memory = laneMemory_ ? laneMemory_(ServerLanes::memoryBytes(offer.count)) : nullptr;
    if (!memory) return refuse(Admission::kFailed, "the claim has no host memory for lanes");
    lanes_ = std::make_unique<ServerLanes>(std::move(memory), offer.count, [this] { wake(); });
  }
  // The answer precedes the first receipt, because the threads of the lane use the channel after that.
  if (answer()) lanes_->add(std::move(offer.channel));
}

bool ServerLink::takeLaneWord(const wire::LinkWord& word) {
  const bool areThere = lanes_ && lanes_->size() == lanes_->count();
  const bool isLanes = word.message == wire::LinkMessage::kLanes;
  if (!isLanes && (tail_ || word.lane >= wire::kMaxLanes || word.received == 0 || word.received > wire::kChunkBytes)) {
    problem_ = "a command on a lane that does not exist";
    return false;
  }
  // One of them has ended, and the client does not know yet. While it is away its commands are still taken, up to the first with
  // data on a lane.
  if (!areThere && !isAway_ && lose("one of its lanes ended") == Next::kGone) return false;
  if (isLanes) {
    // Read ahead; it will be taken again in order.
    if (areThere) lanes_->open();
    return true;
  }
  tail_ = Tail{word.lane, word.received};
  return true;
}

ServerLink::Next ServerLink::takeFromLane(Frame& frame, size_t inRing) {
  const Tail tail = *std::exchange(tail_, std::nullopt);
  ServerLanes::Piece piece = lanes_->take(tail.lane);
  if (piece.bytes != tail.bytes) {
    problem_ = "a lane brought " + std::to_string(piece.bytes) + " bytes of " + std::to_string(tail.bytes);
    return Next::kBroken;
  }
  const size_t head = inRing - sizeof(frame.header);
  const size_t padded = wire::padded(piece.bytes);
  if (head) std::memcpy(piece.data - head, commands_.data() + sizeof(frame.header), head);
  std::fill_n(piece.data + piece.bytes, padded - piece.bytes, std::byte{0});
  frame.take(piece.data - head, head + padded);
  frame.keeper = std::move(piece.keeper);
  commands_.skip(inRing);
  laneBytes_ += padded;
  if (taken() - toldReceived_ >= wire::kAcknowledgeBytes) tellReceived();
  return Next::kFrame;
}

void ServerLink::useLane() {
  if (!lanes_ || !lanes_->areOpen()) return;
  const auto piece = outgoing_.laneable();
  if (!piece) return;
  const wire::ReplyHeader header{sizeof(header) + sizeof(wire::LinkWord), wire::ReplyKind::kLink, 0, 0, 0};
  const wire::LinkWord word{wire::LinkMessage::kOnLane, lanes_->send(*piece), piece->size()};
  const size_t at = word_.size();
  word_.resize(at + header.bytes);
  std::memcpy(word_.data() + at, &header, sizeof(header));
  std::memcpy(word_.data() + at + sizeof(header), &word, sizeof(word));
  outgoing_.decide(true);
}

}  // namespace millpond
