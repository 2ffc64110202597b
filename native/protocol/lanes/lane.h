// SPDX-License-Identifier: Apache-2.0
// A further connection of a session over TCP, which carries the data of large frames beside the main connection. Several lanes
// copy on several processors.
//
// A lane carries pieces: 8 bytes of header, then the data. The main connection has the order: a word of the link names the lane
// before each frame whose last bytes come over it, so the pieces of a lane belong to its frames in that order.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>

#include "protocol/condition.h"
#include "protocol/transport/channel.h"
#include "protocol/usable_cpus.h"

namespace millpond {

class Lane {
 public:
  using Look = std::function<void(std::span<const std::byte>)>;
  /// `onChange`: called on threads of the lane when a piece has arrived, and when the lane has ended. `look`: with each piece,
  /// before it is sent.
  Lane(Channel channel, std::function<void()> onChange, Look look = nullptr)
      : channel_(std::move(channel)), onChange_(std::move(onChange)), look_(std::move(look)) {}
  ~Lane() { close(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Sends a piece after the earlier ones, on a thread of the lane. The bytes must not change until the other side has
  /// acknowledged the frame, or `close` has returned.
  void send(std::span<const std::byte> piece);
  /// Waits until all pieces given so far have been read.
  void awaitSent() const;
  /// The place of the next piece without a place: it may be shorter, unless `isExact`. The lane writes there until the piece has
  /// arrived, or `close` has returned.
  void receive(std::span<std::byte> place, bool isExact);
  /// Drops the next piece without a place, which must have that many bytes.
  void drop(size_t bytes);
  /// The number of pieces that have arrived, in the order of their places.
  uint64_t arrived() const { return arrived_.load(std::memory_order_acquire); }
  /// Bytes of the first arrived piece that was not taken yet; call it once for each.
  size_t takeSize();
  /// The connection has ended, or carries something else.
  bool hasEnded() const { return hasEnded_.load(std::memory_order_acquire); }
  /// Ends the connection. When it returns, no thread of the lane uses memory of pieces any more. May be called repeatedly, not
  /// on a thread of the lane, and not by two threads at the same time.
  void close();
  /// In a forked child, which has no threads of the lane.
  void abandon();

 private:
  struct Place {
    std::byte* to;  ///< null: the bytes are dropped
    size_t bytes;
    bool isExact;
  };

  void addPlace(const Place& place);
  /// Spins for a moment until there is work, if there are processors to spare: waking a thread takes as long as sending a piece.
  void awaitWork(std::unique_lock<std::mutex>& lock, const std::atomic<uint64_t>& work, uint64_t done);
  static void* sender(void* self);
  static void* receiver(void* self);
  void sendUntilClosed();
  void receiveUntilClosed();
  bool sendPiece(std::span<const std::byte> piece);
  bool receivePiece(const Place& place, size_t& bytes);
  bool receiveAll(std::span<std::byte> to);
  void end();

  Channel channel_;
  const std::function<void()> onChange_;
  const Look look_;
  std::atomic<bool> isClosed_{false};
  std::atomic<bool> hasEnded_{false};
  std::atomic<uint64_t> arrived_{0};
  std::atomic<uint64_t> given_{0};   ///< pieces to send
  std::atomic<uint64_t> sent_{0};    ///< of these
  std::atomic<uint64_t> placed_{0};  ///< places
  const bool hasSpareCpus_ = usableCpus() >= 8;

  std::mutex mutex_;
  Condition changed_;
  std::deque<std::span<const std::byte>> pieces_;  ///< to send
  std::deque<Place> places_;                       ///< of pieces that have not arrived
  std::deque<size_t> sizes_;                       ///< of pieces that have
  bool sends_ = false;
  bool receives_ = false;
  pthread_t sender_{};
  pthread_t receiver_{};
};

}  // namespace millpond
