// SPDX-License-Identifier: Apache-2.0
// The lanes of a worker's link. Each receives ahead into a few blocks of its own, so that all of them receive at the same time,
// while the link takes their pieces in the order of the main connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "protocol/lanes/lane.h"
#include "protocol/wire.h"

namespace millpond {

class ServerLanes {
 public:
  /// Memory that the lanes receive into for `count` of them; `wake`: called on their threads when something has arrived.
  static size_t memoryBytes(uint32_t count) { return count * kBlocks * kBlockBytes; }
  ServerLanes(std::shared_ptr<std::byte> memory, uint32_t count, std::function<void()> wake);
  ~ServerLanes();
  ServerLanes(const ServerLanes&) = delete;
  ServerLanes& operator=(const ServerLanes&) = delete;

  /// Adds the next lane. Returns false if there are `count` already.
  bool add(Channel channel);
  uint32_t size() const { return static_cast<uint32_t>(lanes_.size()); }
  uint32_t count() const { return count_; }
  /// One of them has ended.
  bool haveEnded() const;

  /// Whether the next piece of that lane, which must exist, has arrived.
  bool has(uint32_t lane) const { return lanes_[lane]->line.arrived() > lanes_[lane]->taken; }
  /// A piece in a block, after wire::kHeadBytes of free space.
  struct Piece {
    std::byte* data = nullptr;
    size_t bytes = 0;
    std::shared_ptr<const void> keeper;  ///< of the block, which is used again when it ends
  };
  /// Takes the next piece of that lane, which must have arrived.
  Piece take(uint32_t lane);
  /// Whether few blocks of a lane are left: its next pieces wait until others are released.
  bool areLow() const;

  /// From now on the client expects pieces.
  void open() { isOpen_ = true; }
  bool areOpen() const { return isOpen_; }
  /// Sends a piece over one of them; returns which.
  uint32_t send(std::span<const std::byte> piece);
  /// Waits until all pieces given so far have been read.
  void awaitSent() const {
    for (const auto& each : lanes_) each->line.awaitSent();
  }

 private:
  static constexpr uint32_t kBlocks = 6;  ///< of a lane
  static constexpr size_t kBlockBytes = wire::kHeadBytes + wire::kChunkBytes;

  /// A lane, and its blocks in the order in which they are filled.
  struct Line {
    Line(Channel channel, const std::function<void()>& wake) : line(std::move(channel), wake) {}
    std::deque<std::byte*> filling;
    uint64_t taken = 0;
    Lane line;
  };
  /// Where blocks return to, also after the lanes have ended.
  struct Home {
    std::mutex mutex;
    std::shared_ptr<std::byte> memory;
    std::vector<std::shared_ptr<Line>> lines;  ///< empty after the end
    std::vector<uint32_t> used;                ///< blocks, by lane
  };

  const uint32_t count_;
  const std::function<void()> wake_;
  const std::shared_ptr<Home> home_;
  std::vector<std::shared_ptr<Line>> lanes_;
  uint32_t next_ = 0;
  bool isOpen_ = false;
};

}  // namespace millpond
