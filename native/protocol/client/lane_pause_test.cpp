// SPDX-License-Identifier: Apache-2.0
#include "protocol/client/lane_pause.h"

#include "testing/check.h"

namespace millpond {
namespace {

constexpr uint64_t kMi = uint64_t{1} << 20;

}  // namespace

TEST("a connection opens its lanes at once, also after one that has carried much over its own") {
  LanePause pause;
  CHECK(pause.isOver(0));
  pause.open(0);
  pause.begin(LanePause::kEnoughBytes);
  CHECK(pause.isOver(LanePause::kEnoughBytes));
}

TEST("after each loss soon after lanes were opened, a connection carries twice as much before it opens any") {
  LanePause pause;
  uint64_t at = 0;
  for (const uint64_t expected : {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256}) {
    CHECK(expected == 0 || !pause.isOver(at + expected * kMi - 1));
    at += expected * kMi;
    CHECK(pause.isOver(at));
    pause.open(at);
    at += 3000;
    pause.begin(at);
  }
}

TEST("connections that are lost without lanes change nothing") {
  LanePause pause;
  pause.open(0);
  for (uint64_t at = 0; at < 10; ++at) pause.begin(at);
  CHECK(!pause.isOver(9 + kMi - 1));
  CHECK(pause.isOver(9 + kMi));
}

}  // namespace millpond
