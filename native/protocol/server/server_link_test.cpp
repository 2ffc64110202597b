// SPDX-License-Identifier: Apache-2.0
// A worker's end of a session against a client that breaks every rule.
#include "protocol/server/server_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond {
namespace {

using Next = ServerLink::Next;

/// Both ends of a session; the client's end is raw.
struct Ends {
  UniqueFd client;
  SessionMemory memory;  ///< the client's mapping
  std::unique_ptr<ServerLink> link;

  explicit Ends(bool remote) {
    int pair[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    client.reset(pair[0]);
    auto made = SessionMemory::create();
    CHECK(bool(made));
    auto mapped = SessionMemory::map(UniqueFd(::dup(made->file())));
    CHECK(bool(mapped));
    memory = std::move(*mapped);
    CHECK_EQ(::fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
    link = std::make_unique<ServerLink>(UniqueFd(pair[1]), std::move(*made), remote);
  }
  RingControl& submit() { return memory.control().submit; }
  /// Puts bytes into the command stream, over the ring.
  void publish(std::span<const std::byte> bytes) {
    RingProducer ring(submit(), memory.submit(), wire::kSubmitBytes);
    CHECK(ring.hasSpace(bytes.size()));
    std::memcpy(ring.place(), bytes.data(), bytes.size());
    ring.advance(bytes.size());
    ring.publish();
  }
};

std::vector<std::byte> command(uint32_t bytes, size_t sent, uint16_t op = 1) {
  const wire::CommandHeader header{bytes, op, 1, 0, 7};
  std::vector<std::byte> out(std::max(sent, sizeof(header)));
  std::memcpy(out.data(), &header, sizeof(header));
  for (size_t i = sizeof(header); i < out.size(); ++i) out[i] = static_cast<std::byte>(i);
  out.resize(sent);
  return out;
}

TEST("commands are taken whole and in order") {
  Ends ends(false);
  ServerLink::Frame frame;
  CHECK(ends.link->next(frame) == Next::kNothing);
  CHECK(!ends.link->ready());
  ends.publish(command(16, 16, 3));
  ends.publish(command(wire::kMaxFrameBytes, wire::kMaxFrameBytes, 4));
  CHECK(ends.link->ready());
  CHECK(ends.link->next(frame) == Next::kFrame);
  CHECK_EQ(frame.header.op, 3);
  CHECK_EQ(frame.body().size(), 0u);
  CHECK_EQ(frame.end, 16u);
  CHECK(ends.link->next(frame) == Next::kFrame);
  CHECK_EQ(frame.header.op, 4);
  CHECK_EQ(frame.header.thread, 7u);
  CHECK_EQ(frame.body().size(), wire::kMaxFrameBytes - 16);
  CHECK(frame.body()[1000] == static_cast<std::byte>(1016 % 256));
  CHECK(ends.link->next(frame) == Next::kNothing);
  // Its space is available to the client again only after the release.
  RingProducer client(ends.submit(), ends.memory.submit(), wire::kSubmitBytes);
  CHECK_EQ(client.space(), wire::kSubmitBytes - 16 - wire::kMaxFrameBytes);
  ends.link->release(16);
  CHECK_EQ(client.space(), wire::kSubmitBytes - wire::kMaxFrameBytes);
  ends.link->release(ends.link->position());
  CHECK_EQ(client.space(), wire::kSubmitBytes);
}

TEST("a command of impossible length is broken, over either transport") {
  for (const uint32_t bytes :
       {0u, 1u, 8u, 15u, 17u, 20u, static_cast<uint32_t>(wire::kMaxFrameBytes) + 8, 0x80000000u, 0xfffffff8u, ~0u}) {
    for (const bool remote : {false, true}) {
      Ends ends(remote);
      ServerLink::Frame frame;
      if (remote)
        CHECK(bool(sendAll(ends.client.get(), command(bytes, 64))));
      else
        ends.publish(command(bytes, 64));
      CHECK(ends.link->next(frame) == Next::kBroken);
      CHECK_EQ(ends.link->problem(), "a command of " + std::to_string(bytes) + " bytes");
      // It stays so.
      CHECK(ends.link->next(frame) == Next::kBroken);
    }
  }
}

TEST("a command of which the ring holds only a part is broken, and over a socket awaited") {
  ServerLink::Frame frame;
  Ends ring(false);
  ring.publish(command(64, 24));
  CHECK(ring.link->next(frame) == Next::kBroken);
  CHECK_EQ(ring.link->problem(), "a command of 64 bytes of which only 24 are published");

  Ends socket(true);
  const auto whole = command(4096, 4096);
  for (size_t at = 0; at < whole.size(); at += 100) {
    CHECK(socket.link->next(frame) == Next::kNothing);
    CHECK(bool(sendAll(socket.client.get(), std::span(whole).subspan(at, std::min<size_t>(100, whole.size() - at)))));
  }
  CHECK(socket.link->next(frame) == Next::kFrame);
  CHECK_EQ(frame.body().size(), 4080u);
  CHECK(std::memcmp(frame.body().data(), whole.data() + 16, 4080) == 0);
  // A connection that ends in the middle of a command counts as lost.
  CHECK(bool(sendAll(socket.client.get(), command(64, 40))));
  CHECK(socket.link->next(frame) == Next::kNothing);
  socket.client.reset();
  CHECK(socket.link->next(frame) == Next::kGone);
}

TEST("commands that came before the end of the connection are still taken") {
  Ends ends(true);
  ServerLink::Frame frame;
  for (int i = 0; i < 3; ++i) CHECK(bool(sendAll(ends.client.get(), command(24, 24, static_cast<uint16_t>(i + 1)))));
  ends.client.reset();
  for (int i = 0; i < 3; ++i) {
    CHECK(ends.link->next(frame) == Next::kFrame);
    CHECK_EQ(frame.header.op, i + 1);
  }
  CHECK(ends.link->next(frame) == Next::kGone);
}

TEST("a head that lies is broken") {
  for (const uint64_t head : {uint64_t{wire::kSubmitBytes} + 33, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{8}}) {
    Ends ends(false);
    ServerLink::Frame frame;
    ends.publish(command(32, 32));
    CHECK(ends.link->next(frame) == Next::kFrame);
    ends.submit().head.store(head);
    CHECK(ends.link->next(frame) == Next::kBroken);
    CHECK(ends.link->problem().find("ahead, more than it holds") != std::string::npos);
  }
  // Bytes that were never written may be anything, but are inside the ring.
  Ends ends(false);
  ServerLink::Frame frame;
  ends.submit().head.store(wire::kSubmitBytes);
  CHECK(ends.link->next(frame) == Next::kBroken);
}

TEST("what was looked at of a command stays as it is, whatever its client writes there") {
  for (const size_t bodyBytes : {size_t{8}, size_t{wire::kHeadBytes}, size_t{wire::kHeadBytes} + 8, size_t{100'000}}) {
    Ends ends(false);
    const auto bytes = static_cast<uint32_t>(sizeof(wire::CommandHeader) + bodyBytes);
    const std::vector<std::byte> sent = command(bytes, bytes, 3);
    ends.publish(sent);
    ServerLink::Frame frame;
    CHECK(ends.link->next(frame) == Next::kFrame);
    std::memset(ends.memory.submit(), 0xee, bytes);
    CHECK_EQ(frame.header.op, 3);
    CHECK_EQ(frame.body().size(), bodyBytes);
    CHECK_EQ(frame.head().size(), std::min<size_t>(bodyBytes, wire::kHeadBytes));
    const auto* wanted = sent.data() + sizeof(wire::CommandHeader);
    CHECK(std::memcmp(frame.head().data(), wanted, frame.head().size()) == 0);
    // A short command is copied as a whole, and so are copies of that object.
    const ServerLink::Frame held = frame;
    if (bodyBytes <= wire::kHeadBytes) CHECK(std::memcmp(held.body().data(), wanted, bodyBytes) == 0);
    CHECK(held.head().data() != frame.head().data());
  }
}

TEST("a reply ring's tail that lies ends the replies, and nothing is written outside of the ring") {
  const std::vector<std::byte> half(wire::kReplyBytes / 2 - sizeof(wire::ReplyHeader), std::byte{7});
  const auto send = [&](Ends& ends) {
    return ends.link->reply(wire::ReplyKind::kResult, 1, 1, 0, std::span<const std::byte>(half));
  };
  for (const uint64_t tail :
       {uint64_t{wire::kReplyBytes} + 8, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - (uint64_t{1} << 30)}) {
    Ends ends(false);
    CHECK(send(ends));
    CHECK(send(ends));
    // The ring is full, and nothing has been taken from it.
    ends.memory.control().reply.tail.store(tail);
    CHECK(!send(ends));
    CHECK(ends.link->isBroken());
    CHECK(ends.link->problem().find("tail") != std::string::npos);
    ends.memory.control().reply.tail.store(wire::kReplyBytes);
    CHECK(!send(ends));
  }
  // Released bytes are not taken back.
  Ends back(false);
  CHECK(send(back));
  CHECK(send(back));
  back.memory.control().reply.tail.store(wire::kReplyBytes / 2);
  CHECK(send(back));
  back.memory.control().reply.tail.store(8);
  CHECK(!send(back));
  CHECK(back.link->isBroken());
}

TEST("no reply is longer than a ring, over either transport") {
  const std::vector<std::byte> most(wire::kMaxReplyBytes - sizeof(wire::ReplyHeader), std::byte{7});
  const std::vector<std::byte> more(most.size() + 1, std::byte{7});
  for (const bool remote : {false, true}) {
    Ends ends(remote);
    std::thread reader;
    std::vector<std::byte> came(wire::kMaxReplyBytes);
    if (remote) reader = std::thread([&] { CHECK(bool(receiveExactly(ends.client.get(), came, 10'000))); });
    CHECK(ends.link->reply(wire::ReplyKind::kResult, 1, 1, 0, std::span<const std::byte>(most)));
    if (remote) reader.join();
    CHECK(!ends.link->reply(wire::ReplyKind::kResult, 1, 1, 0, std::span<const std::byte>(more)));
    CHECK(!ends.link->isBroken());
    CHECK(ends.link->problem().find("a reply of 1048584 bytes") != std::string::npos);
    // Nor one whose length exceeds 32 bits.
    const std::span<const std::byte> huge(more.data(), size_t{1} << 32);
    CHECK(!ends.link->reply(wire::ReplyKind::kResult, 1, 1, 0, huge));
  }
}

TEST("a session that begins with lies in its control words writes nothing outside of its rings") {
  for (const auto& [head, tail] : {std::pair{uint64_t{0}, uint64_t{8}}, std::pair{~uint64_t{0}, uint64_t{0}},
                                   std::pair{uint64_t{1} << 21, uint64_t{0}}}) {
    Ends ends(false);
    auto file = SessionMemory::create();
    CHECK(bool(file));
    file->control().reply.head.store(head);
    file->control().reply.tail.store(tail);
    int pair[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd client(pair[0]);
    ServerLink link(UniqueFd(pair[1]), std::move(*file), false);
    CHECK(link.isBroken());
    CHECK(!link.reply(wire::ReplyKind::kResult, 1, 1, 0));
  }
}

TEST("no sequence of bytes makes it read outside the ring") {
  std::minstd_rand random(31);
  uint64_t frames = 0;
  for (int round = 0; round < 300; ++round) {
    Ends ends(round % 2 != 0);
    std::vector<std::byte> bytes;
    for (auto n = 1 + random() % 40; n; --n) {
      const uint32_t size =
          random() % 30 ? 16 + 8 * static_cast<uint32_t>(random() % 100) : static_cast<uint32_t>(random());
      const auto one = command(size, std::min<size_t>(size, 16 + random() % 900));
      bytes.insert(bytes.end(), one.begin(), one.end());
    }
    if (ends.link->remote())
      CHECK(bool(sendAll(ends.client.get(), bytes)));
    else
      ends.publish(bytes);
    ServerLink::Frame frame;
    uint64_t before = 0;
    while (ends.link->next(frame) == Next::kFrame) {
      CHECK_EQ(frame.end, before + frame.header.bytes);
      before = frame.end;
      CHECK(frame.end <= bytes.size());
      ++frames;
    }
  }
  CHECK(frames > 300);
}

TEST("a ring whose client takes no replies and goes is given up") {
  Ends ends(false);
  const std::vector<std::byte> body(60'000);
  int sent = 0;
  while (sent < 17 && ends.link->reply(wire::ReplyKind::kResult, 0, 1, 0, std::span(body))) ++sent;
  CHECK_EQ(sent, 17);  // the ring is full now
  std::thread leaver([&] {
    // Not before the worker waits.
    while (ends.memory.control().reply.producerSleeps.load() == 0) std::this_thread::yield();
    ends.client.reset();
  });
  const int64_t start = monotonicNs();
  CHECK(!ends.link->reply(wire::ReplyKind::kResult, 0, 1, 0, std::span(body)));
  CHECK(monotonicNs() - start < 5'000'000'000);
  leaver.join();
}

TEST(
    "small replies that are collected go out together, in order, and with the next look at the commands at the latest") {
  const auto bytesThere = [](const Ends& ends) {
    std::vector<std::byte> seen(size_t{1} << 20);
    const ssize_t n = ::recv(ends.client.get(), seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
    return n < 0 ? size_t{0} : static_cast<size_t>(n);
  };
  const std::vector<std::byte> small(40), large(size_t{64} << 10);
  ServerLink::Frame frame;
  for (int by = 0; by < 5; ++by) {
    Ends ends(true);
    ends.link->collectReplies();
    CHECK(ends.link->reply(wire::ReplyKind::kResult, 1, 1, 0, std::span(small)));
    CHECK(ends.link->reply(wire::ReplyKind::kResult, 2, 2, 0));
    CHECK_EQ(bytesThere(ends), 0u);
    size_t expected = 3 * sizeof(wire::ReplyHeader) + small.size();
    if (by == 0) CHECK(ends.link->next(frame) == Next::kNothing);
    if (by == 1) CHECK(!ends.link->ready());
    if (by == 2) ends.link->sleep(0);
    if (by == 3) CHECK(ends.link->replyLending(wire::ReplyKind::kData, 0, 3, {}, large));
    if (by == 4) CHECK(ends.link->reply(wire::ReplyKind::kResult, 3, 3, 0, std::span(large)));
    expected += by >= 3 ? large.size() : 0;
    if (by < 3) expected -= sizeof(wire::ReplyHeader);
    CHECK_EQ(bytesThere(ends), expected);
    for (uint32_t request = 1; request <= (by < 3 ? 2u : 3u); ++request) {
      wire::ReplyHeader header;
      CHECK(bool(receiveExactly(ends.client.get(), std::as_writable_bytes(std::span(&header, 1)), 1000)));
      CHECK_EQ(header.request, request);
      std::vector<std::byte> body(header.bytes - sizeof(header));
      CHECK(bool(receiveExactly(ends.client.get(), body, 1000)));
    }
  }
}

TEST("the end is not held up by a client that takes nothing") {
  for (const bool remote : {false, true}) {
    Ends ends(remote);
    const std::vector<std::byte> body(60'000);
    if (remote) {
      std::vector<std::byte> fill(100'000);
      while (::send(ends.link->socket(), fill.data(), fill.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
      }
    } else {
      for (int i = 0; i < 17; ++i) CHECK(ends.link->reply(wire::ReplyKind::kResult, 0, 1, 0, std::span(body)));
    }
    const int64_t start = monotonicNs();
    ends.link->end("protocol violation");
    CHECK(monotonicNs() - start < 3'000'000'000);
  }
}

TEST("the end comes with its reason, cut where it is very long") {
  for (const std::string& reason : {std::string(), std::string("the claim was released"), std::string(100'000, 'x')}) {
    Ends ends(true);
    std::vector<std::byte> got;
    std::thread reader([&] {
      std::vector<std::byte> room(65536);
      ssize_t n = 0;
      while ((n = ::recv(ends.client.get(), room.data(), room.size(), 0)) > 0)
        got.insert(got.end(), room.begin(), room.begin() + n);
      ends.client.reset();
    });
    ends.link->end(reason);
    reader.join();
    wire::ReplyHeader header;
    CHECK(got.size() >= sizeof(header));
    std::memcpy(&header, got.data(), sizeof(header));
    CHECK_EQ(header.bytes, got.size());
    CHECK(header.kind == wire::ReplyKind::kEnd);
    const size_t length = std::min<size_t>(reason.size(), 4096);
    CHECK_EQ(got.size(), sizeof(header) + wire::padded(length));
    CHECK_EQ(std::string(reinterpret_cast<const char*>(got.data()) + sizeof(header), length), reason.substr(0, length));
  }
}

TEST("a reason of the end is followed by nothing that was in the ring before") {
  for (size_t length = 1; length <= 17; ++length) {
    Ends ends(false);
    std::memset(ends.memory.reply(), 'x', 256);
    ends.link->end(std::string(length, 'r'));
    const std::byte* body = ends.memory.reply() + sizeof(wire::ReplyHeader);
    for (size_t i = 0; i < wire::padded(length); ++i) CHECK(body[i] == std::byte(i < length ? 'r' : 0));
  }
}

TEST("a sleeping worker is woken by commands and by other threads") {
  for (const bool remote : {false, true}) {
    Ends ends(remote);
    const int64_t start = monotonicNs();
    std::thread waker([&] {
      for (int i = 0; i < 20; ++i) {
        if (!remote)
          while (ends.submit().consumerState.load() == 0) std::this_thread::yield();
        ends.link->wake();
        if (remote) ::usleep(1000);
      }
      if (remote)
        CHECK(bool(sendAll(ends.client.get(), command(16, 16))));
      else
        ends.publish(command(16, 16));
    });
    ServerLink::Frame frame;
    int sleeps = 0;
    while (ends.link->next(frame) != Next::kFrame) {
      ends.link->sleep(20'000'000'000);
      ++sleeps;
    }
    waker.join();
    CHECK(monotonicNs() - start < 10'000'000'000);
    CHECK(sleeps > 0);
  }
  // And it sleeps no longer than its limit.
  for (const bool remote : {false, true}) Ends(remote).link->sleep(1'000'000);
}

}  // namespace
}  // namespace millpond
