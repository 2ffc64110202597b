// SPDX-License-Identifier: Apache-2.0
#include "worker/core/handle_map.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "testing/check.h"

namespace millpond::worker {
namespace {

void* object(uintptr_t n) { return reinterpret_cast<void*>(n * 64); }

TEST("a handle is found by its whole number and kind") {
  HandleMap map;
  const uint64_t wire = handle::make(HandleKind::kEvent, 7, 3);
  CHECK(map.adopt(wire, object(1), 2));
  CHECK(map.find(HandleKind::kEvent, wire)->object == object(1));
  CHECK_EQ(map.find(HandleKind::kEvent, wire)->context, 2);
  CHECK(!map.find(HandleKind::kStream, wire));
  CHECK(!map.find(HandleKind::kEvent, handle::make(HandleKind::kEvent, 7, 4)));
  CHECK(!map.find(HandleKind::kEvent, handle::make(HandleKind::kEvent, 8, 3)));
  CHECK(!map.find(HandleKind::kEvent, wire | 1));
  CHECK(!map.find(HandleKind::kEvent, wire | uint64_t{1} << 63));
  CHECK(!map.find(HandleKind::kEvent, 0));
}

TEST("a taken place cannot be taken again, by no kind") {
  HandleMap map;
  CHECK(map.adopt(handle::make(HandleKind::kEvent, 7, 3), object(1), 1));
  CHECK(!map.adopt(handle::make(HandleKind::kEvent, 7, 3), object(2), 1));
  CHECK(!map.adopt(handle::make(HandleKind::kStream, 7, 4), object(2), 1));
  CHECK(!map.adopt(0, object(2), 1));
  CHECK(map.find(HandleKind::kEvent, handle::make(HandleKind::kEvent, 7, 3))->object == object(1));
}

TEST("a handle that is gone is known as one that was") {
  HandleMap map;
  const uint64_t wire = handle::make(HandleKind::kStream, 900, 1);
  CHECK(!map.wasKnown(wire));
  CHECK(!map.drop(HandleKind::kStream, wire));
  CHECK(map.adopt(wire, nullptr, 1));  // the driver failed to create it
  CHECK(map.find(HandleKind::kStream, wire)->object == nullptr);
  CHECK(!map.drop(HandleKind::kEvent, wire));
  CHECK(map.drop(HandleKind::kStream, wire));
  CHECK(!map.find(HandleKind::kStream, wire));
  CHECK(!map.drop(HandleKind::kStream, wire));
  CHECK(map.wasKnown(wire));
  CHECK(!map.wasKnown(handle::make(HandleKind::kStream, 901, 1)));
  CHECK(map.adopt(handle::make(HandleKind::kStream, 900, 2), object(5), 1));
  CHECK(!map.find(HandleKind::kStream, wire));
}

TEST("the first and the last place can be used, and every kind") {
  HandleMap map;
  for (const uint32_t index : {0u, 1u, handle::kMaxHandles - 1})
    CHECK(map.adopt(handle::make(HandleKind::kStream, index, 9), object(index + 1), 1));
  for (const uint32_t index : {0u, 1u, handle::kMaxHandles - 1})
    CHECK(map.find(HandleKind::kStream, handle::make(HandleKind::kStream, index, 9))->object == object(index + 1));
  for (uint8_t kind = 0; kind < kHandleKinds; ++kind) {
    const uint64_t wire = handle::make(static_cast<HandleKind>(kind), 100u + kind, 0xffff);
    CHECK(handle::kind(wire) == static_cast<HandleKind>(kind));
    CHECK_EQ(handle::index(wire), 100u + kind);
    CHECK_EQ(wire & 15, 0u);
    CHECK(map.adopt(wire, object(kind), 1));
  }
  size_t streams = 0;
  map.each(HandleKind::kStream, [&](const HandleMap::Entry&) { ++streams; });
  CHECK_EQ(streams, 4u);
}

TEST("random handles behave as in a plain map") {
  HandleMap map;
  std::map<uint64_t, void*> model;
  std::map<uint32_t, uint64_t> places;
  std::minstd_rand random(8);
  std::set<uint64_t> touched;
  for (uintptr_t i = 1; i < 200'000; ++i) {
    const auto kind = static_cast<HandleKind>(random() % kHandleKinds);
    const uint64_t wire =
        handle::make(kind, static_cast<uint32_t>(random() % 500), static_cast<uint16_t>(random() % 3));
    const uint32_t place = handle::index(wire);
    switch (random() % 3) {
      case 0: {
        const bool free = !places.contains(place);
        CHECK_EQ(map.adopt(wire, object(i), 1), free);
        if (free) {
          model[wire] = object(i);
          places[place] = wire;
        }
        break;
      }
      case 1: {
        const bool there = model.contains(wire);
        CHECK_EQ(map.drop(kind, wire), there);
        if (there) {
          model.erase(wire);
          places.erase(place);
          touched.erase(wire);
        }
        break;
      }
      default: {
        auto* entry = map.find(kind, wire);
        CHECK_EQ(entry != nullptr, model.contains(wire));
        if (entry) CHECK(entry->object == model[wire]);
        if (entry && kind == HandleKind::kStream) {
          map.touch(*entry);
          touched.insert(wire);
        }
      }
    }
    CHECK_EQ(map.empty(), model.empty());
    if (i % 50 != 0) continue;
    // A touched slot stays touched when it gets another stream: streams are visited too often rather than too rarely.
    const std::set<uint64_t> expected = touched;
    std::set<uint64_t> visited;
    map.eachTouched([&](const HandleMap::Entry& stream) {
      CHECK(visited.insert(stream.wire).second);
      CHECK(model.contains(stream.wire));
      const bool stays = random() % 2;
      if (!stays) touched.erase(stream.wire);
      return stays;
    });
    CHECK(std::includes(visited.begin(), visited.end(), expected.begin(), expected.end()));
  }
}

TEST("a non-blocking stream in the slot of an open one is never open") {
  HandleMap map;
  const uint64_t first = handle::make(HandleKind::kStream, 5, 1), second = handle::make(HandleKind::kStream, 5, 2);
  CHECK(map.adopt(first, object(1), 1));
  map.find(HandleKind::kStream, first)->isBlocking = true;
  map.open(*map.find(HandleKind::kStream, first));
  CHECK(map.drop(HandleKind::kStream, first));
  CHECK(map.adopt(second, object(1), 1));
  map.open(*map.find(HandleKind::kStream, second));
  map.eachOpen([](const HandleMap::Entry&) {
    CHECK(false);
    return true;
  });
  CHECK(!map.hasOpen());
}

}  // namespace
}  // namespace millpond::worker
