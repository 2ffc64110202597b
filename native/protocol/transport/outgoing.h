// SPDX-License-Identifier: Apache-2.0
// What one side of a TCP link sends: the bytes of a ring, with runs of memory between them that are not copied into it.
// All of it stays until the other side has it, to be sent again over another connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "protocol/rings/ring.h"
#include "protocol/transport/channel.h"

namespace millpond {

/// Offsets are those of the stream: they count the bytes of the ring and the lent ones.
class Outgoing {
 public:
  Outgoing() = default;
  explicit Outgoing(RingConsumer ring) : ring_(ring) {}

  /// `bytes`, and zeros up to a multiple of 8, follow what the ring holds up to `head`, which is all that was published.
  /// They stay as they are until acknowledged.
  void lend(uint64_t head, std::span<const std::byte> bytes) { add(head, bytes, {}); }
  /// The same, for bytes that the caller does not keep.
  void append(uint64_t head, std::vector<std::byte> bytes);

  /// Whether there is something that was not sent.
  bool pending() const { return lentSent_ < lent_.size() || ring_.available() != 0; }
  /// Adds what was not sent, as much of it as there is room for runs.
  void collect(SendRuns& runs) const;
  /// The socket took that many of the bytes collected.
  void sent(size_t bytes);

  /// Behind what was sent.
  uint64_t position() const { return ring_.position() + lentSentBytes_ + within_; }
  /// The same, of the ring's bytes alone.
  uint64_t ringPosition() const { return ring_.position(); }
  /// Behind everything that there is.
  uint64_t end() const { return ring_.position() + ring_.available() + lentBytes_; }
  /// All that was ever lent, padding included.
  uint64_t lentBytes() const { return lentBytes_; }
  uint64_t acknowledged() const { return acknowledged_; }
  /// Memory of its own, beside the ring.
  size_t ownBytes() const { return ownBytes_; }

  /// The other side has everything before `offset`, the end of a frame. False: it cannot.
  bool acknowledge(uint64_t offset);
  /// Goes on at `offset`, the end of a frame, over another connection. False: what is wanted is not here.
  bool resumeAt(uint64_t offset);

 private:
  struct Lent {
    uint64_t at;  ///< place in the ring behind which it comes
    std::span<const std::byte> bytes;
    std::vector<std::byte> own;

    size_t size() const { return wire::padded(bytes.size()); }
  };
  void add(uint64_t head, std::span<const std::byte> bytes, std::vector<std::byte> own);

  RingConsumer ring_;  ///< its position: behind what was sent; released: what is acknowledged
  std::deque<Lent> lent_;
  size_t lentSent_ = 0;         ///< how many of these were sent whole
  size_t within_ = 0;           ///< how much of the next one
  uint64_t lentBytes_ = 0;      ///< of all there ever were
  uint64_t lentSentBytes_ = 0;  ///< of all that were sent whole
  uint64_t lentGoneBytes_ = 0;  ///< of all that are acknowledged
  uint64_t acknowledged_ = 0;
  size_t ownBytes_ = 0;
};

}  // namespace millpond
