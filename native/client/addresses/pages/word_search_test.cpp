// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/pages/word_search.h"

#include <cstring>
#include <random>
#include <vector>

#include "testing/check.h"

namespace millpond::client {
namespace {

/// The search as specified, word by word.
size_t firstOf(std::span<const std::byte> bytes, uint64_t lowest, uint64_t range) {
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    if (word - lowest < range) return at;
  }
  return bytes.size();
}

TEST("the first word of a range is found, wherever it lies and whatever the range") {
  std::mt19937_64 random(20261125);
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t lowest = round % 4 == 0 ? random() : 0x7f00'0000'0000 + (random() & 0xffff'f000);
    const uint64_t range = 1 + (random() >> (random() % 64));
    const size_t skipped = random() % 9;
    std::vector<std::byte> all(skipped + random() % 700);
    for (std::byte& each : all) each = static_cast<std::byte>(random());
    const std::span<std::byte> bytes(all.data() + skipped, all.size() - skipped);
    for (uint64_t planted = random() % 3; planted > 0 && bytes.size() >= 8; --planted) {
      // In the range, at its ends and just outside of it; at a place that counts, and beside one.
      const uint64_t words[] = {lowest, lowest + range - 1, lowest + range, lowest - 1, lowest + random() % range};
      std::memcpy(bytes.data() + random() % (bytes.size() - 7), &words[random() % 5], 8);
    }
    CHECK_EQ(findWord(bytes, lowest, range), firstOf(bytes, lowest, range));
  }
}

TEST("a long run without such a word is searched to its end") {
  std::vector<std::byte> bytes(size_t{1} << 20, std::byte{0x11});
  constexpr uint64_t kLowest = 0x7f12'3456'7000;
  CHECK_EQ(findWord(bytes, kLowest, 4096), bytes.size());
  for (const size_t at : {size_t{0}, size_t{120}, size_t{128}, bytes.size() / 2, bytes.size() - 8}) {
    const uint64_t word = kLowest + 8;
    std::memcpy(bytes.data() + at, &word, sizeof(word));
    CHECK_EQ(findWord(bytes, kLowest, 4096), at);
    std::memset(bytes.data() + at, 0x11, sizeof(word));
  }
}

}  // namespace
}  // namespace millpond::client
