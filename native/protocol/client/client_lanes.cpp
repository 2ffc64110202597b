// SPDX-License-Identifier: Apache-2.0
#include "protocol/client/client_lanes.h"

#include <algorithm>
#include <utility>

namespace millpond {
namespace {

constexpr int kSpins = 200;
constexpr int64_t kNapNs = 100'000;

}  // namespace

bool ClientLanes::install(std::vector<std::unique_ptr<Lane>> lanes) {
  const std::lock_guard lock(mutex_);
  if (isStopped_ || count_.load(std::memory_order_relaxed) != 0) return false;
  std::move(lanes.begin(), lanes.end(), lanes_.begin());
  count_.store(static_cast<uint32_t>(lanes.size()), std::memory_order_release);
  areOpen_.store(true, std::memory_order_release);
  return true;
}

void ClientLanes::stop() {
  const std::lock_guard lock(mutex_);
  isStopped_ = true;
  areOpen_.store(false, std::memory_order_release);
  for (const std::unique_ptr<Lane>& each : all()) each->close();
}

void ClientLanes::remove() {
  stop();
  const std::lock_guard lock(mutex_);
  announced_.reset();
  for (std::unique_ptr<Lane>& each : lanes_) each.reset();
  count_.store(0, std::memory_order_release);
  taken_ = {};
  isStopped_ = false;
}

void ClientLanes::abandon() {
  areOpen_.store(false);
  // The threads do not exist in this process, and one of them may hold a lock of its lane.
  for (std::unique_ptr<Lane>& each : lanes_)
    if (each) each.release()->abandon();
  count_.store(0);
}

uint32_t ClientLanes::send(std::span<const std::byte> piece) {
  next_ = (next_ + 1) % count_.load(std::memory_order_relaxed);
  lanes_[next_]->send(piece);
  return next_;
}

void ClientLanes::awaitSent() {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Lane>& each : all()) each->awaitSent();
}

bool ClientLanes::announce(uint64_t lane, uint64_t bytes) {
  if (announced_ || lane >= all().size() || bytes == 0 || bytes > wire::kChunkBytes) return false;
  announced_ = Announced{static_cast<uint32_t>(lane), bytes};
  return true;
}

void ClientLanes::expect(const LaneFrame& frame, std::span<std::byte> to) {
  const Announced piece = *std::exchange(announced_, std::nullopt);
  coming_.push_back({frame, piece.lane});
  if (to.empty())
    lanes_[piece.lane]->drop(piece.bytes);
  else
    lanes_[piece.lane]->receive(to, true);
}

std::optional<LaneFrame> ClientLanes::takeArrived() {
  if (coming_.empty()) return std::nullopt;
  const Coming& first = coming_.front();
  if (lanes_[first.lane]->arrived() <= taken_[first.lane]) return std::nullopt;
  ++taken_[first.lane];
  (void)lanes_[first.lane]->takeSize();
  const LaneFrame frame = first.frame;
  coming_.pop_front();
  return frame;
}

LaneFrame ClientLanes::dropLast() {
  const LaneFrame frame = coming_.back().frame;
  coming_.pop_back();
  return frame;
}

bool ClientLanes::haveEnded() const {
  const auto lanes = all();
  return std::any_of(lanes.begin(), lanes.end(), [](const auto& each) { return each->hasEnded(); });
}

void ClientLanes::awaitChange(uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (changes() != seen) return;
    cpuRelax();
  }
  futexWait(changes_, seen, kNapNs);
}

}  // namespace millpond
