// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "protocol/channel.h"

namespace millpond {

/// Buffers what a socket brings until a whole header, or a small frame, is there.
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
  /// One receive without waiting.
  Got receive(Channel& channel) {
    if (!bytes_) bytes_ = std::make_unique<std::byte[]>(kBytes);
    if (begin_ > kBytes / 2 || end_ == kBytes) {
      std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const ssize_t n = channel.receive({bytes_.get() + end_, std::min(kBytes - end_, size_t{16} << 10)});
    if (n > 0) {
      end_ += static_cast<size_t>(n);
      return Got::kBytes;
    }
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? Got::kNothing : Got::kEnd;
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace millpond
