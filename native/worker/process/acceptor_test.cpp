// SPDX-License-Identifier: Apache-2.0
#include "worker/process/acceptor.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "protocol/futex.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

const Hello kRight{1, 2, Carrier::kSharedMemory, 3, "the ticket", "program"};

struct Door {
  std::string folder = "/tmp/millpond-acceptor-XXXXXX";
  Acceptor acceptor;
  int judged = 0;

  Door() {
    CHECK(::mkdtemp(folder.data()) != nullptr);
    CHECK(bool(acceptor.listenUnix(path())));
    CHECK(bool(acceptor.listenTcp("127.0.0.1", 0, 0)));
    CHECK(acceptor.tcpPort() != 0);
  }
  ~Door() {
    ::unlink(path().c_str());
    ::rmdir(folder.c_str());
  }
  std::string path() const { return folder + "/data.sock"; }
  UniqueFd call(bool remote) const {
    auto socket = remote ? connectTcp("127.0.0.1", acceptor.tcpPort(), 5000) : connectUnix(path());
    CHECK(bool(socket));
    return std::move(*socket);
  }
  /// Checks all connections once. A TCP connection becomes visible a moment after it was made.
  std::optional<Acceptor::Admitted> serve() {
    return acceptor.serve([this](const Hello& hello, bool) {
      ++judged;
      Welcome verdict;
      if (hello.ticket != kRight.ticket) {
        verdict.admission = Admission::kTicketRefused;
        verdict.message = "not this ticket";
      }
      return verdict;
    });
  }
  /// Serves until a client is admitted.
  Acceptor::Admitted admitted() {
    const int64_t deadline = monotonicNs() + 10'000'000'000;
    while (monotonicNs() < deadline) {
      if (auto admitted = serve()) return std::move(*admitted);
      std::vector<int> sockets;
      acceptor.collect(sockets);
      std::vector<pollfd> polled;
      for (const int socket : sockets) polled.push_back({socket, POLLIN, 0});
      ::poll(polled.data(), polled.size(), 100);
    }
    testing::fail(__FILE__, __LINE__, "nobody was admitted");
  }
  /// Serves until the pending connection is answered or dropped; returns the answer, empty if there was none.
  std::vector<std::byte> answer(const UniqueFd& pending) {
    std::vector<std::byte> got(8192);
    const int64_t deadline = monotonicNs() + 10'000'000'000;
    while (monotonicNs() < deadline) {
      CHECK(!serve());
      const ssize_t n = ::recv(pending.get(), got.data(), got.size(), MSG_DONTWAIT);
      if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
        got.resize(n > 0 ? static_cast<size_t>(n) : 0);
        return got;
      }
    }
    testing::fail(__FILE__, __LINE__, "the pending was neither answered nor dropped");
  }
};

std::vector<std::byte> beginning(size_t bytes) {
  auto hello = encode(kRight);
  hello.resize(bytes);
  return hello;
}

void say(const UniqueFd& socket, std::span<const std::byte> bytes) { CHECK(bool(sendAll(socket.get(), bytes))); }

TEST("a range of ports is used up to its last one, and then there is none") {
  // Three consecutive free ports; another process may take one between the search and the test.
  uint16_t first = 0;
  for (int tries = 0; tries < 100; ++tries) {
    uint16_t port = 0;
    auto probe = listenTcp("127.0.0.1", port);
    CHECK(bool(probe));
    if (port > 65000) continue;
    uint16_t second = port + 1;
    uint16_t third = port + 2;
    if (listenTcp("127.0.0.1", second) && listenTcp("127.0.0.1", third)) {
      first = port;
      break;
    }
  }
  CHECK(first != 0);
  const uint16_t last = first + 2;
  Acceptor doors[3];
  uint32_t seen = 0;
  for (Acceptor& door : doors) {
    CHECK(bool(door.listenTcp("127.0.0.1", first, last)));
    CHECK(door.tcpPort() >= first && door.tcpPort() <= last);
    seen |= 1u << (door.tcpPort() - first);
  }
  CHECK_EQ(seen, 7u);
  Acceptor late;
  auto refused = late.listenTcp("127.0.0.1", first, last);
  CHECK(!refused);
  CHECK(refused.error().message.starts_with("no port from " + std::to_string(first) + " to " + std::to_string(last) +
                                            " is free on 127.0.0.1: "));
}

TEST("the right greeting is admitted, over either socket, in any pieces") {
  for (const bool remote : {false, true}) {
    const auto hello = encode(kRight);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{40}, hello.size()}) {
      Door door;
      UniqueFd pending = door.call(remote);
      for (size_t at = 0; at < hello.size(); at += piece) {
        CHECK(!door.serve());
        say(pending, std::span(hello).subspan(at, std::min(piece, hello.size() - at)));
      }
      Acceptor::Admitted admitted = door.admitted();
      CHECK_EQ(admitted.remote, remote);
      CHECK_EQ(admitted.hello.ticket, kRight.ticket);
      CHECK_EQ(admitted.hello.program, "program");
      // For a Unix socket, the kernel's information counts.
      CHECK_EQ(admitted.pid, remote ? 3 : static_cast<int32_t>(::getpid()));
      CHECK_EQ(door.judged, 1);
    }
  }
}

TEST("the wrong ticket is told why, and hung up on") {
  for (const bool remote : {false, true}) {
    Door door;
    UniqueFd pending = door.call(remote);
    Hello wrong = kRight;
    wrong.ticket = "another";
    say(pending, encode(wrong));
    auto welcome = decodeWelcome(door.answer(pending));
    CHECK(bool(welcome));
    CHECK(welcome->admission == Admission::kTicketRefused);
    CHECK_EQ(welcome->message, "not this ticket");
    CHECK(door.answer(pending).empty());
  }
}

TEST("garbage is dropped without an answer") {
  std::minstd_rand random(12);
  const auto hello = encode(kRight);
  for (int round = 0; round < 60; ++round) {
    Door door;
    UniqueFd pending = door.call(round % 2 != 0);
    std::vector<std::byte> garbage(40 + random() % 5000);
    for (auto& b : garbage) b = static_cast<std::byte>(random());
    if (round % 3 == 0) {
      // A greeting in our format that announces more than is allowed.
      std::copy(hello.begin(), hello.end(), garbage.begin());
      garbage[31] = std::byte{0x7f};
    } else if (round % 3 == 1) {
      const std::string http = "POST /millpond.v1.NodeService/OpenSession HTTP/1.1\r\nHost: a\r\n\r\n";
      std::copy_n(reinterpret_cast<const std::byte*>(http.data()), std::min(http.size(), garbage.size()),
                  garbage.begin());
    }
    ::send(pending.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    CHECK(door.answer(pending).empty());
    CHECK_EQ(door.judged, 0);
  }
}

TEST("a greeting that does not come to its end is dropped after its time") {
  Door door;
  door.acceptor.setHelloTimeout(30'000'000);
  UniqueFd silent = door.call(false);
  UniqueFd slow = door.call(true);
  say(slow, beginning(45));
  const int64_t start = monotonicNs();
  CHECK(door.answer(silent).empty());
  CHECK(door.answer(slow).empty());
  CHECK(monotonicNs() - start >= 25'000'000);
  UniqueFd right = door.call(false);
  say(right, encode(kRight));
  door.admitted();
}

/// A pending TCP connection that encrypts, on a thread of its own; whether it has been admitted so far.
bool callEncrypted(Door& door, const LinkSecret& secret, std::optional<Acceptor::Admitted>& admitted) {
  bool isEncrypted = false;
  std::atomic<bool> done{false};
  std::thread pending([&] {
    Channel channel(door.call(true));
    auto tls = TlsStream::ofLink(kTlsClient, secret);
    CHECK(bool(tls));
    if ((*tls)->shakeWithin(channel.socket(), 10'000)) {
      isEncrypted = true;
      channel.encrypt(std::move(*tls));
      CHECK(bool(sendAll(channel, encode(kRight))));
    }
    done.store(true);
  });
  while (!done.load() || (isEncrypted && !admitted))
    if (auto came = door.serve()) admitted = std::move(came);
  pending.join();
  return isEncrypted;
}

TEST("with a secret, callers over TCP are encrypted, and those on the same machine are not asked for it") {
  const LinkSecret secret{std::byte{5}, std::byte{6}};
  Door door;
  door.acceptor.setSecret(secret);
  std::optional<Acceptor::Admitted> admitted;
  CHECK(callEncrypted(door, secret, admitted));
  CHECK(admitted && admitted->remote && admitted->channel.isEncrypted());
  CHECK_EQ(admitted->hello.ticket, kRight.ticket);

  UniqueFd near = door.call(false);
  say(near, encode(kRight));
  CHECK(!door.admitted().channel.isEncrypted());
  CHECK_EQ(door.judged, 2);
}

TEST("with a secret, nobody is heard over TCP who does not know it, and nobody may take his time") {
  Door door;
  door.acceptor.setSecret({std::byte{5}});
  door.acceptor.setHelloTimeout(200'000'000);
  std::optional<Acceptor::Admitted> admitted;
  CHECK(!callEncrypted(door, {std::byte{6}}, admitted));
  CHECK(!admitted);
  UniqueFd plain = door.call(true);
  say(plain, encode(kRight));
  // It may receive an alert saying that this is not TLS.
  CHECK(!decodeWelcome(door.answer(plain)));
  UniqueFd silent = door.call(true);
  CHECK(door.answer(silent).empty());
  CHECK_EQ(door.judged, 0);
}

TEST("callers that hang up in the middle are forgotten") {
  Door door;
  for (int i = 0; i < 200; ++i) {
    UniqueFd pending = door.call(i % 2 != 0);
    if (i % 3) say(pending, beginning(static_cast<size_t>(i % 40)));
    pending.reset();
    CHECK(!door.serve());
  }
  const int64_t deadline = monotonicNs() + 10'000'000'000;
  std::vector<int> sockets;
  do {
    CHECK(!door.serve());
    sockets.clear();
    door.acceptor.collect(sockets);
  } while (sockets.size() > 2 && monotonicNs() < deadline);
  CHECK_EQ(sockets.size(), 2u);  // the two that are listened on
}

TEST("the right client gets in at once however many others hang") {
  for (const bool remote : {false, true})
    for (const size_t others : {size_t{32}, size_t{100}}) {
      Door door;
      std::vector<UniqueFd> idle;
      for (size_t i = 0; i < others; ++i) {
        idle.push_back(door.call(i % 2 != 0));
        if (i % 4 == 0) say(idle.back(), beginning(12));
        if (i % 16 == 15) CHECK(!door.serve());
      }
      const int64_t start = monotonicNs();
      UniqueFd right = door.call(remote);
      say(right, encode(kRight));
      door.admitted();
      CHECK(monotonicNs() - start < 3'000'000'000);
      // No more than a few are kept.
      std::vector<int> sockets;
      door.acceptor.collect(sockets);
      CHECK(sockets.size() <= 2 + 32);
    }
}

TEST("after one admitted the others are still answered") {
  Door door;
  UniqueFd first = door.call(false);
  UniqueFd second = door.call(false);
  say(first, encode(kRight));
  say(second, encode(kRight));
  door.admitted();
  door.admitted();
  CHECK_EQ(door.judged, 2);
}

}  // namespace
}  // namespace millpond::worker
