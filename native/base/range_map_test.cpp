// SPDX-License-Identifier: Apache-2.0
#include "base/range_map.h"

#include <random>
#include <vector>

#include "testing/check.h"

using namespace millpond;

TEST("a range map says of every byte what was said of it last") {
  constexpr uint64_t kBytes = 64;
  std::minstd_rand random(14);
  for (int round = 0; round < 200; ++round) {
    RangeMap map;
    std::vector<uint64_t> model(kBytes, 0);
    for (uint64_t number = 1; number <= 40; ++number) {
      const uint64_t begin = random() % kBytes;
      const uint64_t bytes = random() % (kBytes - begin + 1);
      const uint64_t gone = random() % number;
      if (random() % 3 == 0) {
        map.erase(begin, bytes, gone);
        for (uint64_t at = begin; at < begin + bytes; ++at)
          if (model[at] == gone) model[at] = 0;
      } else {
        map.set(begin, bytes, number);
        std::fill_n(model.begin() + static_cast<ptrdiff_t>(begin), bytes, number);
      }
      const uint64_t from = random() % kBytes;
      const uint64_t length = random() % (kBytes - from + 1);
      uint64_t at = from;
      map.visit(from, length, [&](uint64_t first, uint64_t end, uint64_t seen) {
        CHECK_EQ(first, at);
        CHECK(end > first);
        for (; at < end; ++at) CHECK_EQ(model[at], seen);
      });
      CHECK_EQ(at, from + length);
    }
    map.erase(0, kBytes, 0);
    for (uint64_t number = 1; number <= 40; ++number) map.erase(0, kBytes, number);
    CHECK(map.empty());
  }
}
