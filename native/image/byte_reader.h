// SPDX-License-Identifier: Apache-2.0
// Little-endian reads from bytes of unknown origin: a read past the end fails, it never touches memory
// outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace millpond::image {

using Bytes = std::span<const std::byte>;

/// The integer of type T at `offset`; none if it is not entirely inside `bytes`.
template <typename T>
std::optional<T> loadLittleEndian(Bytes bytes, size_t offset) {
  static_assert(std::is_integral_v<T>);
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

/// A cursor that walks forward through bytes.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : bytes_(bytes) {}

  size_t remaining() const { return bytes_.size() - position_; }
  size_t position() const { return position_; }
  Bytes rest() const { return bytes_.subspan(position_); }

  std::optional<uint8_t> u8() {
    if (remaining() == 0) return std::nullopt;
    return static_cast<uint8_t>(bytes_[position_++]);
  }
  /// An unsigned little-endian number of `count` bytes, at most 8.
  std::optional<uint64_t> number(size_t count) {
    if (count > 8 || remaining() < count) return std::nullopt;
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      value |= static_cast<uint64_t>(bytes_[position_ + i]) << (8 * i);
    }
    position_ += count;
    return value;
  }
  std::optional<Bytes> take(uint64_t count) {
    if (count > remaining()) return std::nullopt;
    Bytes taken = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return taken;
  }

 private:
  Bytes bytes_;
  size_t position_ = 0;
};

}  // namespace millpond::image
