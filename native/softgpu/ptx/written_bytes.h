// SPDX-License-Identifier: Apache-2.0
// Which bytes of an allocation were ever written: a bit for each. Any number of threads mark and ask at once; a thread that
// learns of a write by synchronisation sees its mark, because the mark is set before the write.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

namespace millpond::softgpu::ptx {

class WrittenBytes {
 public:
  /// Initially nothing is marked as written. Without memory for the bits, everything counts as written.
  explicit WrittenBytes(uint64_t bytes)
      : bytes_(bytes), bits_(static_cast<uint64_t*>(std::calloc((bytes + 63) / 64, sizeof(uint64_t))), &std::free) {}

  uint64_t bytes() const { return bytes_; }

  /// Marks bytes from `offset` on; bytes after the end are ignored.
  void mark(uint64_t offset, uint64_t bytes) {
    each(offset, bytes, [this](uint64_t word, uint64_t mask) {
      std::atomic_ref<uint64_t> bits(bits_.get()[word]);
      if ((bits.load(std::memory_order_relaxed) & mask) != mask) bits.fetch_or(mask, std::memory_order_relaxed);
      return true;
    });
  }
  /// Offset of the first of these bytes that was never written.
  std::optional<uint64_t> firstUnwritten(uint64_t offset, uint64_t bytes) const {
    std::optional<uint64_t> found;
    each(offset, bytes, [&](uint64_t word, uint64_t mask) {
      const uint64_t missing = mask & ~std::atomic_ref<uint64_t>(bits_.get()[word]).load(std::memory_order_relaxed);
      if (missing != 0) found = word * 64 + static_cast<uint64_t>(__builtin_ctzll(missing));
      return missing == 0;
    });
    return found;
  }
  /// Copies the marks of `bytes` bytes of another one, from `from` on, to `offset`.
  void copy(uint64_t offset, const WrittenBytes& other, uint64_t from, uint64_t bytes) {
    for (uint64_t k = 0; k < bytes;) {
      const std::optional<uint64_t> hole = other.firstUnwritten(from + k, bytes - k);
      const uint64_t written = hole ? *hole - from : bytes;
      mark(offset + k, written - k);
      if (!hole) return;
      for (k = written; k < bytes && other.firstUnwritten(from + k, 1); ++k) clear(offset + k);
    }
  }

 private:
  void clear(uint64_t offset) {
    if (bits_ && offset < bytes_)
      std::atomic_ref<uint64_t>(bits_.get()[offset / 64])
          .fetch_and(~(uint64_t{1} << offset % 64), std::memory_order_relaxed);
  }
  /// Calls `visit` with each word of bits and those in it, until it returns false.
  template <typename F>
  void each(uint64_t offset, uint64_t bytes, F visit) const {
    if (!bits_ || offset >= bytes_) return;
    for (const uint64_t end = offset + std::min(bytes, bytes_ - offset); offset < end;) {
      const uint64_t bit = offset % 64;
      const uint64_t count = std::min(end - offset, 64 - bit);
      const uint64_t mask = (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << bit;
      if (!visit(offset / 64, mask)) return;
      offset += count;
    }
  }

  const uint64_t bytes_;
  const std::unique_ptr<uint64_t, decltype(&std::free)> bits_;
};

}  // namespace millpond::softgpu::ptx
