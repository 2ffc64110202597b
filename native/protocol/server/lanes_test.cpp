// SPDX-License-Identifier: Apache-2.0
// The lanes of a worker's link, whose client's end is raw.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "protocol/handshake/handshake.h"
#include "protocol/server/server_link.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond {
namespace {

using Next = ServerLink::Next;
constexpr uint32_t kLanes = 2;

void sendBytes(int socket, const void* data, size_t bytes) {
  CHECK(bool(sendAll(socket, {static_cast<const std::byte*>(data), bytes})));
}

struct LaneEnds {
  UniqueFd client;
  std::vector<UniqueFd> lanes;
  std::unique_ptr<ServerLink> link;
  std::shared_ptr<int> lives = std::make_shared<int>();  ///< as long as memory of lanes does
  bool hasMemory = true;

  LaneEnds() {
    link = std::make_unique<ServerLink>(pair(client), std::move(*SessionMemory::create()), true, 60);
    link->receiveLanesInto([this](size_t bytes) {
      if (!hasMemory) return std::shared_ptr<std::byte>();
      return std::shared_ptr<std::byte>(new std::byte[bytes],
                                        [lives = lives](const std::byte* each) { delete[] each; });
    });
  }
  static UniqueFd pair(UniqueFd& ours) {
    int ends[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours.reset(ends[0]);
    CHECK_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    return UniqueFd(ends[1]);
  }
  /// Returns whether the worker has accepted it.
  bool addLane(uint32_t number, uint32_t count) {
    UniqueFd ours;
    link->offerLane(pair(ours), number, count);
    ServerLink::Frame frame;
    CHECK(link->next(frame) == Next::kNothing);
    std::vector<std::byte> welcome(kWelcomeFixedBytes);
    CHECK(bool(receiveExactly(ours.get(), welcome, 1000)));
    const auto rest = welcomeRest(std::span(welcome).first<kWelcomeFixedBytes>());
    CHECK(bool(rest));
    welcome.resize(welcome.size() + *rest);
    CHECK(bool(receiveExactly(ours.get(), std::span(welcome).subspan(kWelcomeFixedBytes), 1000)));
    const auto read = decodeWelcome(welcome);
    CHECK(bool(read));
    lanes.push_back(std::move(ours));
    return read->admission == Admission::kWelcome;
  }
  void addLanes() {
    for (uint32_t i = 0; i < kLanes; ++i) CHECK(addLane(i, kLanes));
  }
  void say(wire::LinkMessage message, uint32_t lane, uint64_t bytes) const {
    const wire::CommandHeader header{sizeof(header) + sizeof(wire::LinkWord), wire::kLinkOp, 0, 0, 0};
    const wire::LinkWord word{message, lane, bytes};
    sendBytes(client.get(), &header, sizeof(header));
    sendBytes(client.get(), &word, sizeof(word));
  }
  /// A command whose data of that many bytes is not in the stream.
  void command(size_t data) const {
    const wire::CommandHeader header{static_cast<uint32_t>(sizeof(header) + 8 + wire::padded(data)), 5, 1, 0, 7};
    const uint64_t fixed = 0x1122'3344'5566'7788;
    sendBytes(client.get(), &header, sizeof(header));
    sendBytes(client.get(), &fixed, sizeof(fixed));
  }
  void piece(uint32_t lane, const std::vector<std::byte>& data, uint32_t reserved = 0) const {
    const uint32_t header[2] = {static_cast<uint32_t>(data.size()), reserved};
    sendBytes(lanes[lane].get(), header, sizeof(header));
    sendBytes(lanes[lane].get(), data.data(), data.size());
  }
  Next next(ServerLink::Frame& frame) const {
    for (int i = 0; i < 2000; ++i) {
      if (const Next got = link->next(frame); got != Next::kNothing) return got;
      if (!link->ready()) link->sleep(1'000'000);
    }
    return Next::kNothing;
  }
};

std::vector<std::byte> bytes(size_t count, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  std::vector<std::byte> out(count);
  for (std::byte& each : out) each = static_cast<std::byte>(random());
  return out;
}

TEST("commands are taken in the order of the main connection, whichever lane is first") {
  LaneEnds ends;
  ends.addLanes();
  const std::vector<size_t> sizes{100'000, 262'144, 65'537, 200'001, 70'000, 262'143};
  std::thread client([&] {
    for (size_t i = 0; i < sizes.size(); ++i) {
      ends.say(wire::LinkMessage::kOnLane, i % kLanes, sizes[i]);
      ends.command(sizes[i]);
    }
    // The second lane before the first.
    for (uint32_t lane = kLanes; lane-- > 0;)
      for (size_t i = lane; i < sizes.size(); i += kLanes) ends.piece(lane, bytes(sizes[i], static_cast<uint32_t>(i)));
  });
  uint64_t start = 0;
  ServerLink::Frame frame;
  for (size_t i = 0; i < sizes.size(); ++i) {
    CHECK(ends.next(frame) == Next::kFrame);
    CHECK_EQ(frame.start, start);
    start += frame.header.bytes;
    const auto body = frame.body();
    CHECK_EQ(body.size(), 8 + wire::padded(sizes[i]));
    CHECK(std::memcmp(frame.head().data(), "\x88\x77\x66\x55\x44\x33\x22\x11", 8) == 0);
    const auto wanted = bytes(sizes[i], static_cast<uint32_t>(i));
    CHECK(std::memcmp(body.data() + 8, wanted.data(), wanted.size()) == 0);
    CHECK(std::all_of(body.begin() + 8 + static_cast<ptrdiff_t>(sizes[i]), body.end(),
                      [](std::byte each) { return each == std::byte{}; }));
    ends.link->release(ends.link->position());
  }
  client.join();
}

TEST("lanes that a session has not accepted are bounded: the oldest connection is closed for a new one") {
  LaneEnds ends;
  std::vector<UniqueFd> offered(100);
  for (UniqueFd& each : offered) ends.link->offerLane(LaneEnds::pair(each), 0, kLanes);
  const auto isOpen = [](const UniqueFd& each) {
    char byte = 0;
    return ::recv(each.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
  };
  CHECK_EQ(static_cast<size_t>(std::count_if(offered.begin(), offered.end(), isOpen)), size_t{wire::kMaxLanes});
  // The last ones are served.
  ServerLink::Frame frame;
  CHECK(ends.link->next(frame) == Next::kNothing);
  std::vector<std::byte> welcome(kWelcomeFixedBytes);
  CHECK(bool(receiveExactly(offered.back().get(), welcome, 1000)));
}

TEST("a lane waits while all its blocks are held, and goes on when one is released") {
  LaneEnds ends;
  ends.addLanes();
  constexpr size_t kPieces = 40;
  std::thread client([&] {
    for (uint32_t i = 0; i < kPieces; ++i) {
      ends.say(wire::LinkMessage::kOnLane, 0, 65'536);
      ends.command(65'536);
      ends.piece(0, bytes(65'536, i));
    }
  });
  std::vector<std::shared_ptr<const void>> held;
  ServerLink::Frame frame;
  uint32_t taken = 0;
  while (ends.link->next(frame) != Next::kFrame) ends.link->sleep(1'000'000);
  ++taken;
  held.push_back(frame.keeper);
  while (taken < 6) {
    CHECK(ends.next(frame) == Next::kFrame);
    ++taken;
    held.push_back(frame.keeper);
  }
  frame.keeper.reset();
  // The lane has six blocks.
  for (int i = 0; i < 20; ++i) {
    CHECK(ends.link->next(frame) == Next::kNothing);
    ends.link->sleep(1'000'000);
  }
  held.clear();
  for (; taken < kPieces; ++taken) {
    CHECK(ends.next(frame) == Next::kFrame);
    const auto wanted = bytes(65'536, taken);
    CHECK(std::memcmp(frame.body().data() + 8, wanted.data(), wanted.size()) == 0);
  }
  client.join();
}

TEST("memory of lanes lives as long as a command that uses it, and no longer") {
  ServerLink::Frame frame;
  std::shared_ptr<int> lives;
  {
    LaneEnds ends;
    lives = ends.lives;
    ends.addLanes();
    ends.say(wire::LinkMessage::kOnLane, 1, 70'000);
    ends.command(70'000);
    ends.piece(1, bytes(70'000, 3));
    CHECK(ends.next(frame) == Next::kFrame);
    ends.link->endLanes();
  }
  CHECK(lives.use_count() > 1);
  const auto wanted = bytes(70'000, 3);
  CHECK(std::memcmp(frame.body().data() + 8, wanted.data(), wanted.size()) == 0);
  frame.keeper.reset();
  CHECK_EQ(lives.use_count(), 1);
}

TEST("lanes out of order, too many, or without memory are refused, and the session goes on") {
  LaneEnds ends;
  ends.hasMemory = false;
  CHECK(!ends.addLane(0, kLanes));
  ends.hasMemory = true;
  CHECK(!ends.addLane(1, kLanes));
  CHECK(!ends.addLane(0, 0));
  CHECK(!ends.addLane(0, wire::kMaxLanes + 1));
  CHECK(ends.addLane(0, kLanes));
  CHECK(!ends.addLane(1, kLanes + 1));
  CHECK(ends.addLane(1, kLanes));
  CHECK(!ends.addLane(2, kLanes));
  // A client that could not open all of them begins again.
  CHECK(ends.addLane(0, kLanes));
  const wire::CommandHeader header{sizeof(header), 3, 1, 0, 7};
  sendBytes(ends.client.get(), &header, sizeof(header));
  ServerLink::Frame frame;
  CHECK(ends.next(frame) == Next::kFrame);
}

TEST("impossible data on lanes ends the session or its connection") {
  const auto next = [](auto&& act) {
    LaneEnds ends;
    ends.addLanes();
    act(ends);
    ServerLink::Frame frame;
    const Next got = ends.next(frame);
    CHECK(got == Next::kBroken || got == Next::kNothing);
    return got;
  };
  using wire::LinkMessage;
  CHECK(next([](LaneEnds& e) { e.say(LinkMessage::kOnLane, wire::kMaxLanes, 100'000); }) == Next::kBroken);
  CHECK(next([](LaneEnds& e) { e.say(LinkMessage::kOnLane, 0, 0); }) == Next::kBroken);
  CHECK(next([](LaneEnds& e) { e.say(LinkMessage::kOnLane, 0, wire::kChunkBytes + 1); }) == Next::kBroken);
  CHECK(next([](LaneEnds& e) { e.say(LinkMessage::kOnLane, 0, ~uint64_t{0}); }) == Next::kBroken);
  CHECK(next([](LaneEnds& e) {
          e.say(LinkMessage::kOnLane, 0, 100'000);
          e.say(LinkMessage::kOnLane, 0, 100'000);
        }) == Next::kBroken);
  CHECK(next([](LaneEnds& e) {
          e.say(LinkMessage::kOnLane, 0, 100'000);
          e.command(8);
        }) == Next::kBroken);
  CHECK(next([](LaneEnds& e) {
          e.say(LinkMessage::kOnLane, 0, 65'536);
          e.command(wire::kChunkBytes * 2);
        }) == Next::kBroken);
  CHECK(next([](LaneEnds& e) {
          e.say(LinkMessage::kOnLane, 0, 100'000);
          e.command(100'000);
          e.piece(0, bytes(90'000, 1));
        }) == Next::kBroken);
  // A piece that is longer than a block, or malformed, ends the lane, and so the connection.
  CHECK(next([](LaneEnds& e) {
          e.say(LinkMessage::kOnLane, 0, 100'000);
          e.command(100'000);
          const uint32_t header[2] = {wire::kChunkBytes + 1, 0};
          sendBytes(e.lanes[0].get(), header, sizeof(header));
        }) == Next::kNothing);
  CHECK(next([](LaneEnds& e) {
          e.say(LinkMessage::kOnLane, 1, 100'000);
          e.command(100'000);
          const uint32_t header[2] = {100'000, 1};
          sendBytes(e.lanes[1].get(), header, sizeof(header));
        }) == Next::kNothing);
}

}  // namespace
}  // namespace millpond
