// SPDX-License-Identifier: Apache-2.0
#include "protocol/rings/bulk_copy.h"

#include <algorithm>
#include <vector>

#include "testing/check.h"

namespace {

using namespace millpond;

TEST("every byte and no other, at any alignment and length") {
  constexpr size_t kRoom = 1024;
  constexpr auto kUntouched = std::byte{0xEE};
  std::vector<std::byte> source(kRoom);
  for (size_t i = 0; i < kRoom; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (size_t fromOffset : {0, 1, 15, 16, 63}) {
    for (size_t toOffset = 0; toOffset < 65; ++toOffset) {
      for (size_t bytes : {0, 1, 63, 64, 65, 127, 128, 200, 511, 512}) {
        std::vector<std::byte> target(kRoom, kUntouched);
        copyPastCaches(target.data() + toOffset, std::span(source).subspan(fromOffset, bytes));
        const auto begin = target.begin() + static_cast<std::ptrdiff_t>(toOffset);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        CHECK(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(fromOffset)));
        CHECK(std::all_of(target.begin(), begin, [](std::byte b) { return b == kUntouched; }));
        CHECK(std::all_of(end, target.end(), [](std::byte b) { return b == kUntouched; }));
      }
    }
  }
}

}  // namespace
