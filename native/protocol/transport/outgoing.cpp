// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/outgoing.h"

#include <algorithm>
#include <utility>

namespace millpond {
namespace {

constexpr std::byte kZeros[8]{};

}  // namespace

void Outgoing::append(uint64_t head, std::vector<std::byte> bytes) {
  const std::span<const std::byte> view(bytes);
  add(head, view, std::move(bytes));
}

void Outgoing::add(uint64_t head, std::span<const std::byte> bytes, std::vector<std::byte> own, size_t frameBytes) {
  ownBytes_ += own.size();
  lent_.push_back({head, bytes, std::move(own), frameBytes});
  lentBytes_ += lent_.back().size();
}

std::optional<std::span<const std::byte>> Outgoing::laneable() const {
  if (lentSent_ == lent_.size()) return std::nullopt;
  const Lent& next = lent_[lentSent_];
  const bool isStart = within_ == 0 && ring_.position() + next.frameBytes == next.at;
  if (next.way != Way::kUndecided || next.frameBytes == 0 || !isStart) return std::nullopt;
  return next.bytes;
}

void Outgoing::collect(SendRuns& runs, bool hasLanes) {
  uint64_t at = ring_.position();
  uint64_t lentBytes = lentSentBytes_;
  const uint64_t head = at + ring_.available();
  size_t within = within_;
  // A lent run takes two entries, for its padding.
  for (size_t i = lentSent_; runs.room() >= 3; ++i) {
    uint64_t limit = i < lent_.size() ? lent_[i].at : head;
    const bool isOpen = hasLanes && i < lent_.size() && lent_[i].way == Way::kUndecided && lent_[i].frameBytes != 0 &&
                        within == 0 && at + lent_[i].frameBytes <= limit;
    if (isOpen) limit -= lent_[i].frameBytes;
    runs.add({ring_.data() + (at - ring_.position()), static_cast<size_t>(limit - at)});
    at = limit;
    if (i == lent_.size() || isOpen) break;
    const Lent& lent = lent_[i];
    lentBytes += lent.size();
    if (lent.way == Way::kLane) continue;
    const size_t whole = std::min(within, lent.bytes.size());
    runs.add(lent.bytes.subspan(whole));
    runs.add(std::span(kZeros).first(lent.size() - std::max(lent.bytes.size(), within)));
    within = 0;
  }
  collected_ = std::max(collected_, at + lentBytes);
}

void Outgoing::passLanes() {
  while (lentSent_ < lent_.size() && lent_[lentSent_].way == Way::kLane && ring_.position() == lent_[lentSent_].at)
    lentSentBytes_ += lent_[lentSent_++].size();
}

void Outgoing::sent(size_t bytes) {
  for (; bytes; passLanes()) {
    const bool isLast = lentSent_ == lent_.size();
    const uint64_t inRing = (isLast ? ring_.position() + ring_.available() : lent_[lentSent_].at) - ring_.position();
    const size_t step = std::min<uint64_t>(bytes, inRing);
    ring_.skip(step);
    bytes -= step;
    if (isLast || step < inRing) return;
    if (lent_[lentSent_].way == Way::kLane) continue;
    const size_t left = lent_[lentSent_].size() - within_;
    if (bytes < left) {
      within_ += bytes;
      return;
    }
    bytes -= left;
    within_ = 0;
    lentSentBytes_ += lent_[lentSent_++].size();
  }
}

bool Outgoing::acknowledge(uint64_t offset) {
  if (offset < acknowledged_ || offset > std::max(position(), collected_)) return false;
  while (!lent_.empty() && lent_.front().at + lentGoneBytes_ + lent_.front().size() <= offset) {
    const Lent& gone = lent_.front();
    lentGoneBytes_ += gone.size();
    ownBytes_ -= gone.own.size();
    if (lentSent_ > 0) {
      --lentSent_;
    } else {
      lentSentBytes_ = lentGoneBytes_;
      within_ = 0;
    }
    lent_.pop_front();
  }
  // No frame ends inside a lent range.
  if (!lent_.empty() && offset > lent_.front().at + lentGoneBytes_) return false;
  acknowledged_ = offset;
  const uint64_t inRing = offset - lentGoneBytes_;
  if (inRing > ring_.position()) ring_.skip(inRing - ring_.position());
  ring_.release(inRing);
  return true;
}

bool Outgoing::resumeAt(uint64_t offset) {
  if (!acknowledge(offset)) return false;
  ring_.rewind();
  for (Lent& each : lent_) each.way = Way::kUndecided;
  lentSent_ = 0;
  within_ = 0;
  lentSentBytes_ = lentGoneBytes_;
  collected_ = offset;
  return true;
}

}  // namespace millpond
