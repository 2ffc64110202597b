// SPDX-License-Identifier: Apache-2.0
#include "protocol/server/server_lanes.h"

#include <algorithm>
#include <utility>

namespace millpond {

ServerLanes::ServerLanes(std::shared_ptr<std::byte> memory, uint32_t count, std::function<void()> wake)
    : count_(count), wake_(std::move(wake)), home_(std::make_shared<Home>()) {
  home_->memory = std::move(memory);
  home_->used.resize(count);
}

ServerLanes::~ServerLanes() {
  for (const auto& each : lanes_) each->line.close();
  const std::lock_guard lock(home_->mutex);
  home_->lines.clear();
}

bool ServerLanes::add(Channel channel) {
  if (size() == count_) return false;
  auto line = std::make_shared<Line>(std::move(channel), wake_);
  std::byte* block = home_->memory.get() + size_t{size()} * kBlocks * kBlockBytes;
  const std::lock_guard lock(home_->mutex);
  for (uint32_t i = 0; i < kBlocks; ++i, block += kBlockBytes) {
    line->filling.push_back(block);
    line->line.receive({block + wire::kHeadBytes, wire::kChunkBytes}, false);
  }
  home_->lines.push_back(line);
  lanes_.push_back(std::move(line));
  return true;
}

bool ServerLanes::haveEnded() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& each) { return each->line.hasEnded(); });
}

ServerLanes::Piece ServerLanes::take(uint32_t lane) {
  Line& line = *lanes_[lane];
  std::byte* block = nullptr;
  {
    const std::lock_guard lock(home_->mutex);
    block = line.filling.front();
    line.filling.pop_front();
    ++home_->used[lane];
  }
  ++line.taken;
  const size_t bytes = line.line.takeSize();
  std::shared_ptr<const void> keeper(block, [home = home_, lane](const void* released) {
    auto* again = static_cast<std::byte*>(const_cast<void*>(released));
    const std::lock_guard lock(home->mutex);
    --home->used[lane];
    if (lane >= home->lines.size()) return;
    home->lines[lane]->filling.push_back(again);
    home->lines[lane]->line.receive({again + wire::kHeadBytes, wire::kChunkBytes}, false);
  });
  return {block + wire::kHeadBytes, bytes, std::move(keeper)};
}

bool ServerLanes::areLow() const {
  const std::lock_guard lock(home_->mutex);
  return std::any_of(home_->used.begin(), home_->used.end(), [](uint32_t each) { return each > kBlocks / 2; });
}

uint32_t ServerLanes::send(std::span<const std::byte> piece) {
  next_ = (next_ + 1) % size();
  lanes_[next_]->line.send(piece);
  return next_;
}

}  // namespace millpond
