// SPDX-License-Identifier: Apache-2.0
// The outgoing data of one side of a TCP link: the bytes of a ring, with runs of memory between them that are not
// copied into it. All of it is kept until the other side has acknowledged it, for resending over another connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "protocol/rings/ring.h"
#include "protocol/transport/channel.h"

namespace millpond {

/// Offsets are positions in the stream: they count both the bytes of the ring and the lent ones.
class Outgoing {
 public:
  Outgoing() = default;
  explicit Outgoing(RingConsumer ring) : ring_(ring) {}

  /// Appends `bytes`, padded with zeros to a multiple of 8, after the ring's data up to `head`, the published end. They
  /// must not change until they are acknowledged. `frameBytes`: of the same frame, in the ring directly before them, if a lane
  /// may carry them; 0: none may.
  void lend(uint64_t head, std::span<const std::byte> bytes, size_t frameBytes = 0) {
    add(head, bytes, {}, frameBytes);
  }
  /// The same, for bytes that the caller does not keep.
  void append(uint64_t head, std::vector<std::byte> bytes);

  /// Whether there is unsent data.
  bool pending() const { return lentSent_ < lent_.size() || ring_.available() != 0; }
  /// The lent bytes of the frame to be sent next, if it is undecided whether a lane carries them.
  std::optional<std::span<const std::byte>> laneable() const;
  /// Decides that for this frame: a lane carries them, or they are sent with the rest.
  void decide(bool onLane) { lent_[lentSent_].way = onLane ? Way::kLane : Way::kInline; }
  /// Adds unsent data, as long as there is room for runs; with lanes up to the next frame for which that is undecided.
  void collect(SendRuns& runs, bool hasLanes = false);
  /// The socket has accepted that many of the collected bytes.
  void sent(size_t bytes);

  /// The end of the sent data.
  uint64_t position() const { return ring_.position() + lentSentBytes_ + within_; }
  /// The same, counting only the ring's bytes.
  uint64_t ringPosition() const { return ring_.position(); }
  /// The end of all data.
  uint64_t end() const { return ring_.position() + ring_.available() + lentBytes_; }
  /// Total of lent bytes, padding included.
  uint64_t lentBytes() const { return lentBytes_; }
  uint64_t acknowledged() const { return acknowledged_; }
  /// Its own memory, beside the ring.
  size_t ownBytes() const { return ownBytes_; }

  /// The other side has everything before `offset`, the end of a frame. It may have collected bytes beyond those that the socket
  /// has accepted: a TLS stream accepts encrypted records together, after it has sent some of them. Returns false if that is
  /// impossible.
  bool acknowledge(uint64_t offset);
  /// Continues at `offset`, the end of a frame, over another connection. Returns false if the data is no longer
  /// available.
  bool resumeAt(uint64_t offset);

 private:
  enum class Way : uint8_t { kUndecided, kInline, kLane };
  struct Lent {
    uint64_t at;  ///< position in the ring after which it comes
    std::span<const std::byte> bytes;
    std::vector<std::byte> own;
    size_t frameBytes;  ///< see `lend`
    Way way = Way::kUndecided;

    size_t size() const { return wire::padded(bytes.size()); }
  };
  void add(uint64_t head, std::span<const std::byte> bytes, std::vector<std::byte> own, size_t frameBytes = 0);
  /// Counts ranges as sent that a lane carries, and before which all is sent.
  void passLanes();

  RingConsumer ring_;  ///< its position: end of the sent data; released: acknowledged data
  std::deque<Lent> lent_;
  size_t lentSent_ = 0;         ///< number of lent ranges that were sent completely
  size_t within_ = 0;           ///< sent bytes of the next range
  uint64_t lentBytes_ = 0;      ///< of all ranges ever lent
  uint64_t lentSentBytes_ = 0;  ///< of all sent completely
  uint64_t lentGoneBytes_ = 0;  ///< of all acknowledged
  uint64_t acknowledged_ = 0;
  uint64_t collected_ = 0;  ///< the end of the bytes collected for the present connection
  size_t ownBytes_ = 0;
};

}  // namespace millpond
