// SPDX-License-Identifier: Apache-2.0
// The lanes of a client's session: opens them, and receives data over them.
#include <cstring>
#include <utility>

#include "protocol/client/opened_session.h"
#include "protocol/client/session_client.h"
#include "protocol/gen/api_hash.h"

namespace millpond {
namespace {

/// The copy that opens them continues without lanes after this time.
constexpr int kLaneTimeoutMs = 2000;

}  // namespace

std::vector<std::unique_ptr<Lane>> Session::reachLanes(const Endpoint& endpoint, LaneClaim claim) {
  std::vector<std::unique_ptr<Lane>> lanes;
  for (; claim.lane < claim.count; ++claim.lane) {
    auto channel = reachWorker(endpoint, kLaneTimeoutMs);
    if (!channel) return {};
    Hello hello{wire::kProtocolVersion, kApiHash, Carrier::kTcp, 0, "", endpoint.program, graceSeconds_, "", {}};
    hello.lane = claim;
    const auto welcome = greetWorker(*channel, hello, kLaneTimeoutMs);
    if (!welcome || welcome->admission != Admission::kWelcome) return {};
    lanes.push_back(lanes_.make(std::move(*channel)));
  }
  return lanes;
}

void Session::openLanes() {
  const std::lock_guard opening(lanesMutex_);
  if (!mayOpenLanes_.load()) return;
  Endpoint endpoint;
  LaneClaim claim;
  {
    const std::lock_guard lock(sendMutex_);
    if (isDown_.load() || isParked_.load() || lost() || isLeaving_.load() || !lanePause_.isOver(arrived())) return;
    lanePause_.open(arrived());
    endpoint = endpoint_;
    claim = {secret_, attempt_, 0, endpoint_.lanes};
    mayOpenLanes_.store(false);
  }
  auto lanes = reachLanes(endpoint, claim);
  if (lanes.empty()) return;
  {
    const std::lock_guard sending(sendMutex_);
    // Another connection would need lanes of its own.
    const bool isSame = attempt_ == claim.attempt && secret_ == claim.secret;
    if (!isSame || isDown_.load() || isParked_.load() || lost() || !lanes_.install(std::move(lanes))) return;
    queueLinkWord({wire::LinkMessage::kLanes, claim.count, 0});
  }
  sendPending();
}

Session::Pumped Session::receiveAnnounced(const wire::ReplyHeader& header) {
  size_t left = header.bytes - sizeof(header);
  LaneFrame frame{header, lanes_.announced(), 0};
  std::span<std::byte> to;
  if (header.kind == wire::ReplyKind::kData) {
    if (wire::padded(frame.bytes) != left || header.op != left - frame.bytes) return Pumped::kBroken;
    to = destination(header, frame.bytes);
    if (to.empty()) return Pumped::kBroken;
  } else {
    wire::Landing landing{};
    if (left < sizeof(landing)) return Pumped::kBroken;
    if (!take(std::as_writable_bytes(std::span(&landing, 1)))) return Pumped::kCut;
    left -= sizeof(landing);
    if (landing.bytes != frame.bytes || wire::padded(landing.bytes) != left) return Pumped::kBroken;
    frame.landing = landing.number;
    if (mayLand_ && mayLand_(landing.hostAddress, landing.bytes))
      to = {reinterpret_cast<std::byte*>(landing.hostAddress), landing.bytes};
  }
  lanes_.expect(frame, to);
  return Pumped::kSome;
}

bool Session::settleLanes() {
  bool some = false;
  while (const auto frame = lanes_.takeArrived()) {
    some = true;
    received_.store(received_.load(std::memory_order_relaxed) + frame->header.bytes, std::memory_order_relaxed);
    if (frame->landing && onLanded_) onLanded_(frame->landing);
  }
  return some;
}

void Session::dropComing() {
  lanes_.stop();
  isTorn_ = isTorn_ || !lanes_.empty() || lanes_.announced() != 0;
  while (!lanes_.empty()) {
    const LaneFrame frame = lanes_.dropLast();
    if (frame.header.kind != wire::ReplyKind::kData) continue;
    if (Waiter* waiter = waiters_.find(frame.header.request)) waiter->answer.dataBytes -= frame.bytes;
  }
}

Session::Pumped Session::pumpTorn() {
  for (size_t onLane = wire::padded(lanes_.announced());;) {
    if (inbox_.pending().size() < sizeof(wire::ReplyHeader)) {
      if (inbox_.receive(channel_) != Inbox::Got::kBytes) return Pumped::kCut;
      continue;
    }
    wire::ReplyHeader header;
    std::memcpy(&header, inbox_.pending().data(), sizeof(header));
    const size_t bytes = header.bytes - onLane;
    if (header.bytes < sizeof(header) + onLane || bytes > wire::kMaxReplyBytes) return Pumped::kCut;
    if (inbox_.pending().size() < bytes) {
      if (inbox_.receive(channel_, bytes) != Inbox::Got::kBytes) return Pumped::kCut;
      continue;
    }
    const auto body = inbox_.pending().subspan(sizeof(header), bytes - sizeof(header));
    if (header.kind == wire::ReplyKind::kEnd) return accept(header, body) ? Pumped::kCut : Pumped::kBroken;
    wire::LinkWord word{};
    if (header.kind == wire::ReplyKind::kLink && body.size() == sizeof(word))
      std::memcpy(&word, body.data(), sizeof(word));
    onLane = word.message == wire::LinkMessage::kOnLane ? wire::padded(word.received) : 0;
    inbox_.skip(bytes);
  }
}

}  // namespace millpond
