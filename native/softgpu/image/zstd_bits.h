// SPDX-License-Identifier: Apache-2.0
// The two bit orders of RFC 8878: forward (FSE table descriptions) and backward (everything entropy-coded).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

#include "softgpu/image/byte_reader.h"

namespace millpond::softgpu::zstd {

/// Reads bits from the lowest bit of the first byte upwards.
class ForwardBits {
 public:
  explicit ForwardBits(Bytes bytes) : bytes_(bytes) {}

  /// At most 16 bits; nothing past the end.
  std::optional<uint32_t> read(unsigned count) {
    if (count > bytes_.size() * 8 - position_) return std::nullopt;
    uint32_t value = 0;
    for (unsigned i = 0; i < count; ++i, ++position_) {
      uint32_t bit = (static_cast<uint32_t>(bytes_[position_ / 8]) >> (position_ % 8)) & 1;
      value |= bit << i;
    }
    return value;
  }
  /// Bytes touched so far: the rest of a partly read byte is padding.
  size_t bytesUsed() const { return (position_ + 7) / 8; }

 private:
  Bytes bytes_;
  size_t position_ = 0;  // in bits
};

/// Reads bits from the end of the bytes towards the start, below the highest set bit of the last byte.
class BackwardBits {
 public:
  /// Nothing when the bytes are empty or the end mark is missing.
  static std::optional<BackwardBits> open(Bytes bytes) {
    if (bytes.empty() || bytes.back() == std::byte{0}) return std::nullopt;
    const int mark = static_cast<int>(std::bit_width(static_cast<unsigned>(bytes.back()))) - 1;
    return BackwardBits(bytes, static_cast<int64_t>(bytes.size() - 1) * 8 + mark);
  }

  /// At most 32 bits. Bits before the start of the data read as zero and make remaining() negative.
  uint64_t read(unsigned count) {
    remaining_ -= count;
    return peek(remaining_, count);
  }
  /// The next `count` bits without taking them.
  uint64_t look(unsigned count) const { return peek(remaining_ - count, count); }
  void skip(unsigned count) { remaining_ -= count; }
  int64_t remaining() const { return remaining_; }

 private:
  BackwardBits(Bytes bytes, int64_t remaining) : bytes_(bytes), remaining_(remaining) {}

  uint64_t peek(int64_t from, unsigned count) const {
    if (count == 0 || from + count <= 0) return 0;
    uint64_t mask = (uint64_t{1} << count) - 1;
    if (from < 0) return (load(0) << static_cast<unsigned>(-from)) & mask;
    return (load(static_cast<size_t>(from) / 8) >> (from % 8)) & mask;
  }
  uint64_t load(size_t offset) const {
    uint64_t value = 0;
    size_t available = bytes_.size() - offset;
    std::memcpy(&value, bytes_.data() + offset, available < 8 ? available : 8);
    return value;
  }

  Bytes bytes_;
  int64_t remaining_;  // in bits
};

}  // namespace millpond::softgpu::zstd
