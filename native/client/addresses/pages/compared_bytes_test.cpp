// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/pages/compared_bytes.h"

#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "testing/check.h"

namespace millpond::client {
namespace {

using Bytes = std::vector<std::byte>;

Bytes zeros(size_t n) { return Bytes(n, std::byte{0}); }
uint64_t addressOf(Bytes& memory) { return reinterpret_cast<uint64_t>(memory.data()); }

std::vector<std::pair<size_t, size_t>> changes(ComparedBytes& compared) {
  std::vector<std::pair<size_t, size_t>> runs;
  compared.takeChanges(
      [&](size_t offset, std::span<const std::byte> bytes) { runs.emplace_back(offset, bytes.size()); });
  return runs;
}

TEST("what the program writes is told once, from the first byte to the last that changed") {
  Bytes memory = zeros(1001);
  ComparedBytes compared(addressOf(memory), memory);
  CHECK(changes(compared).empty());
  memory[3] = std::byte{1};
  memory[1000] = std::byte{2};
  const double number = 2.0;  // most of its bytes are zeros
  std::memcpy(memory.data() + 512, &number, sizeof(number));
  const auto runs = changes(compared);
  CHECK_EQ(runs.size(), 3u);
  CHECK(runs[0] == std::pair(size_t{3}, size_t{1}));
  CHECK(runs[1] == std::pair(size_t{519}, size_t{1}));
  CHECK(runs[2] == std::pair(size_t{1000}, size_t{1}));
  CHECK(changes(compared).empty());
}

TEST("numbers side by side that all changed are one run") {
  Bytes memory = zeros(4096);
  ComparedBytes compared(addressOf(memory), memory);
  for (uint64_t i = 0; i < 512; ++i) {
    const uint64_t value = (i + 1) << 8;
    std::memcpy(memory.data() + i * 8, &value, sizeof(value));
  }
  CHECK_EQ(changes(compared).size(), 1u);
}

TEST("what the device changed is the program's, what it did not stays as the program wrote it meanwhile") {
  Bytes memory = zeros(64);
  ComparedBytes compared(addressOf(memory), memory);
  memory[8] = std::byte{7};
  Bytes device = zeros(64);
  device[9] = std::byte{5};
  compared.merge(0, device);
  CHECK(memory[8] == std::byte{7});
  CHECK(memory[9] == std::byte{5});
  const auto runs = changes(compared);
  CHECK_EQ(runs.size(), 1u);
  CHECK(runs[0] == std::pair(size_t{8}, size_t{1}));
}

TEST("a change of one aligned word is told from changes of more") {
  alignas(8) std::byte memory[64] = {};
  for (const size_t from : {size_t{0}, size_t{3}}) {
    const size_t bytes = sizeof(memory) - from;
    ComparedBytes compared(reinterpret_cast<uint64_t>(memory + from), Bytes(memory + from, memory + sizeof(memory)));
    CHECK_EQ(compared.onlyChange()->bytes, 0u);
    memory[18] = memory[21] = std::byte{7};  // of one word
    const auto word = compared.onlyChange();
    CHECK(word.has_value());
    CHECK_EQ(word->offset, 18 - from);
    CHECK_EQ(word->bytes, 4u);
    CHECK(word->data().front() == std::byte{7} && word->data().back() == std::byte{7});
    memory[sizeof(memory) - 1] = std::byte{1};
    CHECK(!compared.onlyChange().has_value());
    compared.keep(*word);
    const auto last = compared.onlyChange();
    CHECK(last && last->offset == bytes - 1 && last->bytes == 1);
    compared.keep(*last);
    CHECK_EQ(compared.onlyChange()->bytes, 0u);
    memory[23] = memory[24] = std::byte{2};  // of two words, side by side
    CHECK(!compared.onlyChange().has_value());
    std::memset(memory, 0, sizeof(memory));
  }
}

TEST("two sides that write different bytes at random end with the same") {
  std::mt19937 random(11);
  Bytes memory = zeros(777), device = zeros(777), expected = zeros(777);
  ComparedBytes compared(addressOf(memory), memory);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 40; ++i) {
      const size_t at = random() % memory.size();
      const auto value = static_cast<std::byte>(random());
      (at % 2 ? memory : device)[at] = value;
      expected[at] = value;
    }
    // In either order, and in pieces.
    const auto push = [&] {
      compared.takeChanges([&](size_t offset, std::span<const std::byte> bytes) {
        for (size_t i = 0; i < bytes.size(); ++i)
          if ((offset + i) % 2) device[offset + i] = bytes[i];
      });
    };
    if (round % 2) push();
    compared.merge(0, std::span(device).first(300));
    compared.merge(300, std::span(device).subspan(300));
    if (round % 2 == 0) push();
    CHECK(memory == expected);
    CHECK(device == expected);
  }
}

}  // namespace
}  // namespace millpond::client
