// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "protocol/transport/channel.h"

namespace millpond {

/// Buffers received bytes until a whole header, or a whole frame without data, is complete.
class Inbox {
 public:
  static constexpr size_t kBytes = size_t{128} << 10;

  std::span<const std::byte> pending() const { return {bytes_.get() + begin_, end_ - begin_}; }
  void skip(size_t n) {
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }

  void clear() { begin_ = end_ = 0; }

  enum class Got { kBytes, kNothing, kEnd };
  /// One non-blocking receive. `frame`: total bytes of the pending frame, for which space is made.
  Got receive(Channel& channel, size_t frame = 0) {
    if (!bytes_ || frame > room_) {
      const size_t room = std::max(frame, kBytes);
      auto fresh = std::make_unique<std::byte[]>(room);
      if (bytes_) std::memcpy(fresh.get(), bytes_.get() + begin_, end_ - begin_);
      bytes_ = std::move(fresh);
      room_ = room;
      end_ -= begin_;
      begin_ = 0;
    }
    if (begin_ > room_ / 2 || end_ == room_) {
      std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const ssize_t n = channel.receive({bytes_.get() + end_, std::min(room_ - end_, size_t{16} << 10)});
    if (n > 0) {
      end_ += static_cast<size_t>(n);
      return Got::kBytes;
    }
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? Got::kNothing : Got::kEnd;
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t room_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace millpond
