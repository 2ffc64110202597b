// SPDX-License-Identifier: Apache-2.0
// The lanes of a client's session, and the frames whose data is still coming over them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "protocol/lanes/lane.h"
#include "protocol/wire.h"

namespace millpond {

/// A frame of the worker that is complete but for a piece on a lane.
struct LaneFrame {
  wire::ReplyHeader header{};
  size_t bytes = 0;      ///< of the piece
  uint64_t landing = 0;  ///< number of the landing that ends with it
};

/// The session's locks guard it: pieces are sent under its sending lock and received under its reading lock; lanes are installed
/// under the sending lock, before any piece is announced, and removed under both.
class ClientLanes {
 public:
  /// Whether pieces may be sent. May be called on any thread.
  bool areOpen() const { return areOpen_.load(std::memory_order_acquire); }
  void beforeSending(std::function<void(std::span<const std::byte>)> look) { look_ = std::move(look); }
  /// A lane for `install`.
  std::unique_ptr<Lane> make(Channel channel) {
    return std::make_unique<Lane>(
        std::move(channel),
        [this] {
          changes_.fetch_add(1, std::memory_order_acq_rel);
          futexWake(changes_);
        },
        look_);
  }
  /// Returns false if they were stopped in the meantime.
  bool install(std::vector<std::unique_ptr<Lane>> lanes);
  /// Ends the connections, and those that would be installed before `remove`. When it returns, the lanes use no memory of the
  /// program any more. May be called on any thread.
  void stop();
  /// Removes them; the frames still coming must have been dropped.
  void remove();
  void abandon();

  /// Sends a piece over one of them; returns which.
  uint32_t send(std::span<const std::byte> piece);

  /// Waits until all pieces given so far have been read. May be called on any thread.
  void awaitSent();

  /// The last `bytes` bytes of the next frame come over that lane. Returns false if that is impossible.
  bool announce(uint64_t lane, uint64_t bytes);
  /// Bytes of the next frame that come over a lane; 0: none.
  size_t announced() const { return announced_ ? announced_->bytes : 0; }
  /// The place of the announced bytes; empty: they are dropped.
  void expect(const LaneFrame& frame, std::span<std::byte> to);
  /// Whether frames are still coming.
  bool empty() const { return coming_.empty(); }
  /// The first frame, if it is complete.
  std::optional<LaneFrame> takeArrived();
  /// The last frame that is still coming, which will be sent again.
  LaneFrame dropLast();
  bool haveEnded() const;
  /// Waits until a piece arrives or a lane ends, briefly. `seen`: `changes` before the last look.
  uint32_t changes() const { return changes_.load(std::memory_order_acquire); }
  void awaitChange(uint32_t seen);

 private:
  struct Announced {
    uint32_t lane;
    size_t bytes;
  };
  struct Coming {
    LaneFrame frame;
    uint32_t lane;
  };

  std::span<const std::unique_ptr<Lane>> all() const {
    return std::span(lanes_).first(count_.load(std::memory_order_acquire));
  }

  std::function<void(std::span<const std::byte>)> look_;
  std::mutex mutex_;  ///< while lanes are installed, stopped or removed
  bool isStopped_ = false;
  std::array<std::unique_ptr<Lane>, wire::kMaxLanes> lanes_;
  std::atomic<uint32_t> count_{0};
  std::array<uint64_t, wire::kMaxLanes> taken_{};  ///< by lane: pieces whose frames are complete
  std::atomic<bool> areOpen_{false};
  uint32_t next_ = 0;
  std::optional<Announced> announced_;
  std::deque<Coming> coming_;
  std::atomic<uint32_t> changes_{0};
};

}  // namespace millpond
