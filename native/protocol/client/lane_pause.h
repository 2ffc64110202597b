// SPDX-License-Identifier: Apache-2.0
// When a session opens its lanes again after its connection was lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace millpond {

/// A loss of any lane is one of all connections, so over a network that often cuts connections a session with lanes hardly gets
/// on. After each loss soon after its lanes were opened, the next connection carries twice as much before it opens any: exponential
/// back-off, in bytes. Positions count the bytes that have arrived at either side.
class LanePause {
 public:
  /// After that many bytes with lanes a loss says nothing about the network.
  static constexpr uint64_t kEnoughBytes = uint64_t{16} << 20;
  static constexpr uint64_t kFirstBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  /// A connection begins there; the one before, if any, has ended there.
  void begin(uint64_t position) {
    if (std::exchange(isOpen_, false))
      bytes_ = position - openedAt_ >= kEnoughBytes ? 0 : std::clamp(2 * bytes_, kFirstBytes, kMostBytes);
    beganAt_ = position;
  }
  bool isOver(uint64_t position) const { return position - beganAt_ >= bytes_; }
  /// The connection begins to open its lanes there.
  void open(uint64_t position) {
    openedAt_ = position;
    isOpen_ = true;
  }

 private:
  uint64_t beganAt_ = 0;
  uint64_t bytes_ = 0;
  uint64_t openedAt_ = 0;
  bool isOpen_ = false;
};

}  // namespace millpond
