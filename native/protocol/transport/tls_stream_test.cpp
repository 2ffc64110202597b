// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/tls_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "protocol/transport/channel.h"
#include "testing/check.h"

namespace millpond {
namespace {

constexpr int kPatienceMs = 60'000;
const LinkSecret kSecret{std::byte{1}, std::byte{2}, std::byte{3}};

struct Ends {
  UniqueFd client, server;

  Ends() {
    int pair[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    client.reset(pair[0]);
    server.reset(pair[1]);
  }
};

std::unique_ptr<TlsStream> end(MillpondTlsSide side, const LinkSecret& secret = kSecret, uint64_t rekeyBytes = 0) {
  auto stream = TlsStream::ofLink(side, secret, rekeyBytes);
  CHECK(bool(stream));
  return std::move(*stream);
}

struct Link {
  Channel client, server;
};

/// Both ends of a link over `ends` that share a secret.
Link linkOver(Ends ends, uint64_t rekeyBytes = 0) {
  Link link{std::move(ends.client), std::move(ends.server)};
  auto client = end(kTlsClient, kSecret, rekeyBytes), server = end(kTlsServer, kSecret, rekeyBytes);
  std::thread other([&] { CHECK(bool(server->shakeWithin(link.server.socket(), kPatienceMs))); });
  CHECK(bool(client->shakeWithin(link.client.socket(), kPatienceMs)));
  other.join();
  link.client.encrypt(std::move(client));
  link.server.encrypt(std::move(server));
  return link;
}

std::span<const std::byte> bytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> noise(uint32_t seed, size_t bytes) {
  std::minstd_rand random(seed);
  std::vector<std::byte> out(bytes);
  for (auto& each : out) each = static_cast<std::byte>(random() >> 8);
  return out;
}

TEST("two ends that share a secret understand each other, and nobody else does") {
  Link link = linkOver({});
  const std::string text = "what the program sends to its GPU";
  CHECK(bool(sendAll(link.client, bytesOf(text))));
  std::vector<std::byte> wire(4096);
  const ssize_t n = ::recv(link.server.socket(), wire.data(), wire.size(), MSG_PEEK);
  CHECK(n > static_cast<ssize_t>(text.size()));
  wire.resize(static_cast<size_t>(n));
  const auto clear = bytesOf(text).first(8);
  CHECK(std::search(wire.begin(), wire.end(), clear.begin(), clear.end()) == wire.end());

  std::vector<std::byte> got(text.size());
  CHECK(bool(receiveExactly(link.server, got, kPatienceMs)));
  CHECK(std::ranges::equal(got, bytesOf(text)));
  CHECK(bool(sendAll(link.server, got)));
  std::ranges::fill(got, std::byte{0});
  CHECK(bool(receiveExactly(link.client, got, kPatienceMs)));
  CHECK(std::ranges::equal(got, bytesOf(text)));
}

TEST("bytes that came with the end of the handshake are there") {
  Ends ends;
  auto client = end(kTlsClient), server = end(kTlsServer);
  CHECK(client->shake(ends.client.get()) == kTlsShakeMore);
  CHECK(server->shake(ends.server.get()) == kTlsShakeMore);
  CHECK(client->shake(ends.client.get()) == kTlsShakeDone);
  Channel early(std::move(ends.client));
  early.encrypt(std::move(client));
  CHECK(bool(sendAll(early, bytesOf("at once"))));
  CHECK(server->shake(ends.server.get()) == kTlsShakeDone);
  Channel late(std::move(ends.server));
  late.encrypt(std::move(server));
  CHECK(late.holdsBytes());
  CHECK_EQ(late.wait(POLLIN, 0), POLLIN);
  std::vector<std::byte> got(7);
  CHECK(bool(receiveExactly(late, got, kPatienceMs)));
  CHECK(std::ranges::equal(got, bytesOf("at once")));
}

TEST("another secret is refused on both sides") {
  Ends ends;
  auto client = end(kTlsClient, LinkSecret{std::byte{9}}), server = end(kTlsServer);
  Status heard = Done{};
  std::thread other([&] {
    heard = server->shakeWithin(ends.server.get(), kPatienceMs);
    ends.server.reset();
  });
  const Status said = client->shakeWithin(ends.client.get(), kPatienceMs);
  other.join();
  CHECK(!said);
  CHECK(!heard);
  CHECK(heard.error().message.find("binder") != std::string::npos);
}

TEST("whoever speaks no TLS is refused") {
  for (const char* text : {"GET / HTTP/1.1\r\n\r\n", "MPND what a client in clear would say, and it is long enough"}) {
    Ends ends;
    auto server = end(kTlsServer);
    CHECK(bool(sendAll(ends.client.get(), bytesOf(text))));
    CHECK(!server->shakeWithin(ends.server.get(), kPatienceMs));
    CHECK(server->why() != "");
  }
}

TEST("whoever says nothing is given up") {
  Ends ends;
  auto server = end(kTlsServer);
  const Status waited = server->shakeWithin(ends.server.get(), 20);
  CHECK(!waited);
  CHECK_EQ(waited.error().message, "no answer within 20 ms");
}

/// Bytes from a client, for an attacker in between to change.
std::vector<std::byte> taken(const Link& link) {
  std::vector<std::byte> wire(size_t{256} << 10);
  const ssize_t n = ::recv(link.server.socket(), wire.data(), wire.size(), MSG_DONTWAIT);
  CHECK(n > 0);
  wire.resize(static_cast<size_t>(n));
  return wire;
}

/// Passes `wire` on to the link's server instead of the original. The client's end stays open.
Channel passedOn(Link& link, std::span<const std::byte> wire) {
  Ends ends;
  CHECK(bool(sendAll(ends.client.get(), wire)));
  CHECK(::dup3(ends.server.get(), link.server.socket(), O_CLOEXEC) >= 0);
  return Channel(std::move(ends.client));
}

TEST("a record that was changed on its way is never taken for what was sent") {
  for (const size_t at : {size_t{0}, size_t{3}, size_t{5}, size_t{40}, size_t{100}, size_t{1029}}) {
    Link link = linkOver({});
    CHECK(bool(sendAll(link.client, noise(1, 1000))));
    auto wire = taken(link);
    wire[std::min(at, wire.size() - 1)] ^= std::byte{0x10};
    const Channel between = passedOn(link, wire);
    std::vector<std::byte> got(1000);
    const Status received = receiveExactly(link.server, got, 200);
    CHECK(!received);
    // With an increased length the receiver waits for the rest; every other change is detected immediately.
    if (at != 3) CHECK_EQ(received.error().message, std::string("cannot receive: ") + std::strerror(EBADMSG));
    CHECK(std::ranges::all_of(got, [](std::byte each) { return each == std::byte{0}; }));
  }
}

TEST("a record that came twice, or not at all, ends the connection") {
  for (const bool twice : {true, false}) {
    Link link = linkOver({});
    CHECK(bool(sendAll(link.client, noise(1, 100))));
    auto wire = taken(link);
    if (twice) wire.insert(wire.end(), wire.begin(), wire.end());
    CHECK(bool(sendAll(link.client, noise(2, 100))));
    if (!twice) wire = taken(link);
    const Channel between = passedOn(link, wire);
    std::vector<std::byte> got(twice ? 101 : 1);
    CHECK(!receiveExactly(link.server, got, kPatienceMs));
    CHECK_EQ(errno, EBADMSG);
    if (twice) CHECK(std::equal(got.begin(), got.begin() + 100, noise(1, 100).begin()));
  }
}

/// The offsets of the records in `wire`, and its end.
std::vector<size_t> recordsOf(std::span<const std::byte> wire) {
  std::vector<size_t> at{0};
  while (at.back() < wire.size()) {
    const auto length = [&](size_t i) { return std::to_integer<size_t>(wire[at.back() + i]); };
    at.push_back(at.back() + 5 + (length(3) << 8 | length(4)));
  }
  CHECK_EQ(at.back(), wire.size());
  return at;
}

/// Tampers with a connection: flips a bit, or drops, repeats, exchanges or cuts records.
void tamper(std::vector<std::byte>& wire, std::minstd_rand& random) {
  const auto at = recordsOf(wire);
  const size_t i = random() % (at.size() - 1), j = random() % (at.size() - 1);
  const auto begin = [&](size_t k) { return wire.begin() + static_cast<ptrdiff_t>(at[k]); };
  const auto record = [&](size_t k) { return std::vector<std::byte>(begin(k), begin(k + 1)); };
  const auto place = begin(i);
  switch (random() % 6) {
    case 0: wire[random() % wire.size()] ^= static_cast<std::byte>(1 << random() % 8); break;
    case 1: wire.erase(place, begin(i + 1)); break;
    case 2: {
      const auto again = record(j);
      wire.insert(place, again.begin(), again.end());
      break;
    }
    case 3:
      if (const auto first = record(i), second = record(j); i != j && first.size() == second.size()) {
        std::ranges::copy(second, place);
        std::ranges::copy(first, begin(j));
      }
      break;
    case 4: wire.resize(random() % wire.size()); break;
    default: wire.insert(place, random() % 100, static_cast<std::byte>(random() >> 8));
  }
}

TEST("whatever is done to records on their way, what arrives is the beginning of what was sent") {
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    std::minstd_rand random(seed);
    // So few that the socket accepts them all.
    Link link = linkOver({}, seed % 3 == 0 ? 5'000 : 0);
    std::vector<std::byte> sent;
    for (size_t i = 0; i < 12; ++i) {
      const auto some = noise(seed * 100 + static_cast<uint32_t>(i), i % 2 ? 700 : 1 + random() % 3000);
      CHECK(bool(sendAll(link.client, some)));
      sent.insert(sent.end(), some.begin(), some.end());
    }
    auto wire = taken(link);
    tamper(wire, random);
    if (wire.empty()) continue;
    passedOn(link, wire).close();
    std::vector<std::byte> got(sent.size() + 1);
    size_t at = 0;
    for (ssize_t n = 1; n > 0 || (n < 0 && errno == EAGAIN);) {
      n = link.server.receive(std::span(got).subspan(at, std::min<size_t>(got.size() - at, 1 + random() % 2000)));
      if (n > 0) at += static_cast<size_t>(n);
      CHECK(at < got.size());
    }
    CHECK(std::equal(got.begin(), got.begin() + static_cast<ptrdiff_t>(at), sent.begin()));
  }
}

TEST("a connection that ends inside of a record has brought none of it") {
  Link link = linkOver({});
  CHECK(bool(sendAll(link.client, noise(1, 1000))));
  auto wire = taken(link);
  wire.pop_back();
  passedOn(link, wire).close();
  std::vector<std::byte> got(1000);
  const Status received = receiveExactly(link.server, got, kPatienceMs);
  CHECK_EQ(received.error().message, "the other side closed the connection");
}

/// Sends `all` in runs of random sizes, as many at once as possible, from a thread that does nothing else.
void sendInRuns(Channel& channel, std::span<const std::byte> all, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<size_t> sizes;
  for (size_t left = all.size(); left;) {
    sizes.push_back(std::min<size_t>(left, random() % 3 == 0 ? random() % 300'000 : random() % 200));
    left -= sizes.back();
  }
  size_t first = 0, within = 0, at = 0;
  while (at < all.size()) {
    SendRuns runs;
    size_t from = at;
    for (size_t i = first; i < sizes.size() && runs.room() > 0; ++i) {
      const size_t bytes = sizes[i] - (i == first ? within : 0);
      runs.add(all.subspan(from, bytes));
      from += bytes;
    }
    const size_t before = runs.left();
    if (!runs.send(channel)) {
      CHECK(errno == EAGAIN || errno == EINTR);
      channel.wait(POLLOUT, 100);
      continue;
    }
    size_t gone = before - runs.left();
    at += gone;
    for (within += gone; first < sizes.size() && within >= sizes[first]; ++first) within -= sizes[first];
  }
}

void receiveInPieces(Channel& channel, std::span<const std::byte> expected, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<std::byte> got(expected.size());
  for (size_t at = 0; at < got.size();) {
    const size_t bytes = std::min<size_t>(got.size() - at, random() % 2 == 0 ? 1 + random() % 100 : random() % 100'000);
    CHECK(bool(receiveExactly(channel, std::span(got).subspan(at, bytes), kPatienceMs)));
    at += bytes;
  }
  CHECK(std::ranges::equal(got, expected));
}

TEST("both ends send and receive at the same time, through small sockets and many keys") {
  constexpr size_t kBytes = size_t{6} << 20;
  Ends ends;
  const int small = 8192;
  for (const UniqueFd* each : {&ends.client, &ends.server})
    CHECK_EQ(::setsockopt(each->get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
  Link link = linkOver(std::move(ends), 200'000);
  const auto up = noise(1, kBytes), down = noise(2, kBytes);
  std::thread threads[] = {std::thread([&] { sendInRuns(link.client, up, 3); }),
                           std::thread([&] { sendInRuns(link.server, down, 4); }),
                           std::thread([&] { receiveInPieces(link.client, down, 5); }),
                           std::thread([&] { receiveInPieces(link.server, up, 6); })};
  for (std::thread& each : threads) each.join();
}

TEST("what was not taken whole is sent on as it was, and nothing else in its place") {
  Link link = linkOver({});
  const auto much = noise(1, size_t{4} << 20);
  const iovec run{const_cast<std::byte*>(much.data()), much.size()};
  while (link.client.send(std::span(&run, 1)) > 0) {
  }
  CHECK_EQ(errno, EAGAIN);
  const iovec less{const_cast<std::byte*>(much.data()), 10};
  CHECK(link.client.send(std::span(&less, 1)) < 0);
  CHECK_EQ(errno, EPROTO);
}

// The address sanitizer's allocator does not survive a fork while another thread allocates.
#ifndef __SANITIZE_ADDRESS__
TEST("a forked child makes connections of its own, whatever the parent's threads are at") {
  Link link = linkOver({});
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    const auto some = noise(1, 20'000);
    std::vector<std::byte> got(some.size());
    while (!stop.load()) {
      CHECK(bool(sendAll(link.client, some)));
      CHECK(bool(receiveExactly(link.server, got, kPatienceMs)));
    }
  });
  for (int i = 0; i < 5; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      link.client.abandon();
      link.server.abandon();
      Ends ends;
      auto client = end(kTlsClient), server = end(kTlsServer);
      // In one thread: each side continues as far as the other allows.
      bool done =
          client->shake(ends.client.get()) == kTlsShakeMore && server->shake(ends.server.get()) == kTlsShakeMore &&
          client->shake(ends.client.get()) == kTlsShakeDone && server->shake(ends.server.get()) == kTlsShakeDone;
      ::_exit(done ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(::waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
  }
  stop.store(true);
  busy.join();
}
#endif

TEST("32 bytes are read from 64 hexadecimal digits and from nothing else") {
  const auto bytes = parseHex32("000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F");
  CHECK(bool(bytes));
  for (size_t i = 0; i < bytes->size(); ++i) CHECK((*bytes)[i] == static_cast<std::byte>(i));
  CHECK(!parseHex32(""));
  CHECK(!parseHex32(std::string(63, '0')));
  CHECK(!parseHex32(std::string(65, '0')));
  CHECK(!parseHex32(std::string(63, '0') + "g"));
}

}  // namespace
}  // namespace millpond
