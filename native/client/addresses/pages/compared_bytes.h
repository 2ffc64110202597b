// SPDX-License-Identifier: Apache-2.0
// Memory of this process whose like the worker has at the same address, and which the program may use at any moment:
// what either side has changed shows by comparing with what both had last. Bytes that one side changes are not taken
// from the other, so that the two may write different ones at the same time. Knows no wire, and is used under a lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace millpond::client {

class ComparedBytes {
 public:
  /// `last`: the present contents on both sides.
  ComparedBytes(uint64_t address, std::vector<std::byte> last) : address_(address), last_(std::move(last)) {}

  uint64_t address() const { return address_; }
  size_t bytes() const { return last_.size(); }
  /// The last common contents.
  std::span<const std::byte> last() const { return last_; }

  /// Passes the bytes that the program has changed to `send(offset, bytes)`.
  template <typename Send>
  void takeChanges(Send&& send) {
    for (Run run = nextChange(0); run.bytes != 0; run = nextChange(run.offset + run.bytes)) {
      keep(run);
      send(run.offset, std::span<const std::byte>(last_).subspan(run.offset, run.bytes));
    }
  }
  /// A part of one aligned 8-byte word, with the program's contents at one moment. No bytes: nothing.
  struct Word {
    size_t offset = 0;
    size_t bytes = 0;
    std::array<std::byte, 8> now{};
    std::span<const std::byte> data() const { return std::span(now).first(bytes); }
  };
  /// Everything that the program has changed, if that is no more than one word.
  std::optional<Word> onlyChange() const;
  /// From now on both sides have it.
  void keep(const Word& word);
  /// The value that the program has written to a word of 4 or 8 bytes; none if both sides have the same.
  std::optional<uint64_t> changed(uint64_t address, size_t bytes) const;
  /// Takes the worker's bytes from `offset` on: changes by the device become visible to the program.
  void merge(size_t offset, std::span<const std::byte> now);

 private:
  struct Run {
    size_t offset;
    size_t bytes;
  };
  Run nextChange(size_t from) const;
  void keep(Run run);
  std::byte* here() const { return reinterpret_cast<std::byte*>(address_); }

  uint64_t address_;
  std::vector<std::byte> last_;
};

/// Runs of bytes in which two of the same length differ: `visit(offset, length)`.
template <typename Visit>
void eachDifference(std::span<const std::byte> a, std::span<const std::byte> b, Visit&& visit) {
  for (size_t at = 0; at < a.size();) {
    if (a[at] == b[at]) {
      ++at;
      continue;
    }
    const size_t start = at;
    while (at < a.size() && a[at] != b[at]) ++at;
    visit(start, at - start);
  }
}

}  // namespace millpond::client
