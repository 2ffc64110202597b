// SPDX-License-Identifier: Apache-2.0
// A session over a TCP link that is cut repeatedly: every command and every reply arrives exactly once, complete and in
// order.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <map>
#include <numeric>

#include "testing/servers/cutting_proxy.h"
#include "testing/servers/link_program.h"

namespace millpond {
namespace {

using testing::CuttingProxy;
using namespace testing;

void cutRepeatedly(uint32_t lanes) {
  const char* given = std::getenv("MILLPOND_TEST_SEED");
  const auto seed = given ? static_cast<uint32_t>(std::atoi(given)) : 4711u;
  constexpr uint32_t kCuts = 150;
  std::atomic<uint32_t> cuts{0};
  Serving serving;
  ReturnServer server(3600, [&](ServerLink& link) { serving(link); });
  CuttingProxy proxy(seed, cuts);
  proxy.start(server.port(), kCuts);
  auto session = connectTo(proxy.port(), 3600, lanes);
  session->onLost(
      [&](const std::string& why) { testing::fail(__FILE__, __LINE__, "seed " + std::to_string(seed) + ": " + why); });
  std::vector<std::thread> threads;
  for (uint32_t t = 1; t <= 4; ++t)
    threads.emplace_back([&, t] {
      Caller caller(*session, t, seed + t);
      while (cuts.load() < kCuts) caller.act();
      for (int n = 0; n < 20; ++n) caller.act();
      caller.echo();
    });
  for (auto& thread : threads) thread.join();
  // A connection and its lanes can be cut at the same moment.
  CHECK(cuts.load() >= kCuts && cuts.load() <= kCuts + lanes);
  session->onLost([](const std::string&) {});
  session.reset();
}

TEST("a session whose link is cut 150 times goes on as if nothing had happened") { cutRepeatedly(0); }

TEST("a session with four lanes, any of which is cut, goes on as if nothing had happened") { cutRepeatedly(4); }

TEST("what is not acknowledged is bounded, and a program that only posts goes on") {
  std::atomic<uint32_t> cuts{0};
  Serving serving;
  ReturnServer server(3600, [&](ServerLink& link) { serving(link); });
  auto session = connectTo(server.port(), 3600);
  // Many times the capacity of the ring, and no thread ever waits for an answer.
  const std::vector<std::byte> data = bytesOf(0, 0);
  uint64_t number = 0;
  for (int n = 0; n < 3000; ++n) {
    const auto bytes = bytesOf(++number, 10'000);
    const Ask ask{number, bytes.size(), 0};
    CHECK(session->postWithData(kTakeData, {1, 9}, sizeof(ask), fill(ask), bytes));
  }
  uint64_t count = 0;
  Session::Answer answer;
  answer.body = std::as_writable_bytes(std::span(&count, 1));
  CHECK_EQ(session->wait(kTellCount, {1, 9}, sizeof(Ask), fill({0, 0, 0}), answer), 0);
  CHECK_EQ(count, number);
}

TEST("replies that a client takes and never acknowledges are waited for, and looked for behind its commands") {
  int pair[2];
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd client(pair[0]);
  CHECK_EQ(::fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
  auto memory = SessionMemory::create();
  CHECK(bool(memory));
  ServerLink link(UniqueFd(pair[1]), std::move(*memory), true, 60);
  constexpr size_t kReplies = 1024;
  constexpr size_t kBytes = size_t{64} << 10;
  std::atomic<uint64_t> taken{0};
  std::thread reader([&] {
    std::vector<std::byte> room(kBytes);
    for (ssize_t n = 0; taken.load() < kReplies * (kBytes + 16); taken += static_cast<uint64_t>(n)) {
      n = ::recv(client.get(), room.data(), room.size(), 0);
      CHECK(n > 0);
    }
  });
  std::atomic<size_t> written{0};
  std::thread writer([&] {
    const std::vector<std::byte> data(kBytes);
    for (size_t i = 0; i < kReplies; ++i, ++written)
      CHECK(link.reply(wire::ReplyKind::kData, 0, 1, 0, std::span<const std::byte>(data)));
  });
  // The worker stops when it keeps much data, whatever the client has received.
  while (taken.load() < (size_t{32} << 20)) std::this_thread::yield();
  ::usleep(100'000);
  CHECK(taken.load() < (size_t{40} << 20));
  const auto send = [&](uint16_t op, const auto& body) {
    wire::CommandHeader header{sizeof(header) + sizeof(body), op, 1, 0, 1};
    CHECK(bool(sendAll(client.get(), std::as_bytes(std::span(&header, 1)))));
    CHECK(bool(sendAll(client.get(), std::as_bytes(std::span(&body, 1)))));
  };
  // Commands that are not executed meanwhile, followed by an acknowledgement.
  const std::array<uint64_t, 1000> body{};
  for (int n = 0; written.load() < kReplies; ++n) {
    // A thread that has written everything no longer reads, so nothing may wait for it.
    pollfd room{client.get(), POLLOUT, 0};
    if (::poll(&room, 1, 20) != 1) continue;
    if (n < 100) send(kTakeData, body);
    send(wire::kLinkOp, wire::LinkWord{wire::LinkMessage::kReceived, 0, taken.load() / (kBytes + 16) * (kBytes + 16)});
    ::usleep(20'000);
  }
  writer.join();
  reader.join();
  // All commands have arrived.
  ServerLink::Frame frame;
  CHECK(link.next(frame) == ServerLink::Next::kFrame);
  CHECK_EQ(frame.header.op, kTakeData);
  CHECK_EQ(frame.body().size(), sizeof(body));
}

TEST("replies for a client that sends commands and acknowledges nothing are kept as far as that is allowed") {
  int pair[2];
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd client(pair[0]);
  CHECK_EQ(::fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
  auto memory = SessionMemory::create();
  CHECK(bool(memory));
  ServerLink link(UniqueFd(pair[1]), std::move(*memory), true, 60);
  constexpr size_t kMi = size_t{1} << 20;
  std::vector<size_t> asked;
  link.keepWithin([&](size_t bytes) {
    asked.push_back(bytes);
    return bytes <= 48 * kMi;
  });
  std::atomic<bool> isOver{false};
  std::thread reader([&] {
    std::vector<std::byte> room(kMi);
    while (!isOver.load()) {
      pollfd look{client.get(), POLLIN, 0};
      if (::poll(&look, 1, 10) == 1) ::recv(client.get(), room.data(), room.size(), MSG_DONTWAIT);
    }
  });
  // More commands than the ring holds.
  std::thread sender([&] {
    const std::array<uint64_t, 1000> body{};
    std::vector<std::byte> command(sizeof(wire::CommandHeader) + sizeof(body));
    const wire::CommandHeader header{static_cast<uint32_t>(command.size()), kTakeData, 1, 0, 1};
    std::memcpy(command.data(), &header, sizeof(header));
    size_t sent = 0;
    while (!isOver.load()) {
      const std::span<const std::byte> rest = std::span<const std::byte>(command).subspan(sent);
      const ssize_t n = ::send(client.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0)
        ::usleep(1000);
      else
        sent = (sent + static_cast<size_t>(n)) % command.size();
    }
  });
  const std::vector<std::byte> data(size_t{64} << 10);
  size_t kept = 0;
  while (link.reply(wire::ReplyKind::kData, 0, 1, 0, std::span<const std::byte>(data))) kept += data.size();
  isOver.store(true);
  reader.join();
  sender.join();
  CHECK(link.problem().find("its claim has no host memory for more") != std::string::npos);
  // In steps, and before the memory is there.
  CHECK_EQ(asked, (std::vector<size_t>{16 * kMi, 32 * kMi, 48 * kMi, 64 * kMi}));
  CHECK(kept >= 32 * kMi);
  CHECK(kept <= (32 + 48 + 2) * kMi);
}

TEST("a client that does nothing comes back by itself") {
  std::atomic<uint32_t> cuts{0};
  Serving serving;
  std::atomic<int> away{0}, back{0};
  ReturnServer server(3600, [&](ServerLink& link) {
    link.onLink([&](const std::string& what) { ++(what.ends_with("is back") ? back : away); });
    serving(link);
  });
  CuttingProxy proxy(1, cuts);
  proxy.start(server.port(), 0);
  auto session = connectTo(proxy.port(), 3600);
  Caller caller(*session, 1, 1);
  caller.echo();
  proxy.setOff(true);
  while (away.load() == 0) std::this_thread::yield();
  proxy.setOff(false);
  while (back.load() == 0) std::this_thread::yield();
  caller.echo();
}

TEST("a link that stays away ends both sides, each with its reason") {
  std::atomic<uint32_t> cuts{0};
  std::string problem;
  Serving serving;
  std::string reason;
  {
    ReturnServer server(1, [&](ServerLink& link) {
      serving(link);
      problem = link.problem();
    });
    CuttingProxy proxy(1, cuts);
    proxy.start(server.port(), 0);
    auto session = connectTo(proxy.port(), 3600);
    CHECK_EQ(session->graceSeconds(), 1u);
    std::atomic<int> lost{0};
    session->onLost([&](const std::string& why) {
      reason = why;
      ++lost;
    });
    Caller caller(*session, 1, 1);
    caller.echo();
    proxy.setOff(true);
    Session::Answer answer;
    CHECK_EQ(session->wait(kNeverAnswered, {1, 1}, sizeof(Ask), fill({0, 0, 0}), answer), kSessionLost);
    CHECK_EQ(lost.load(), 1);
    CHECK(session->lost());
    CHECK(!session->post(kTakeData, {1, 1}, 0, [](std::byte*) {}));
  }
  CHECK_EQ(problem, "its connection was lost, and the client did not come back within 1 s");
  CHECK(reason.find("could not be restored within 1 s") != std::string::npos);
  CHECK(reason.find("MILLPOND_RECONNECT_GRACE") != std::string::npos);
}

TEST("a connection that was closed is waited for shortly, unless the client asked for more than by default") {
  const std::pair<uint32_t, const char*> cases[] = {{5, "up to 5 s"}, {60, "up to 10 s"}, {3600, "up to 3600 s"}};
  for (const auto& [grace, expected] : cases) {
    int ends[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    UniqueFd client(ends[1]);
    auto memory = SessionMemory::create();
    CHECK(bool(memory));
    ServerLink link(UniqueFd(ends[0]), std::move(*memory), true, grace);
    std::string said;
    link.onLink([&](const std::string& text) { said = text; });
    client.reset();
    ServerLink::Frame frame;
    CHECK(link.next(frame) == ServerLink::Next::kNothing);
    CHECK(said.find(expected) != std::string::npos);
  }
}

TEST("a client that says goodbye is not waited for") {
  Serving serving;
  ReturnServer server(86'400, [&](ServerLink& link) { serving(link); });
  auto session = connectTo(server.port(), 86'400);
  Caller caller(*session, 1, 1);
  caller.echo();
  session->sayGoodbye();
  caller.echo();  // it has not ended yet
  session.reset();
  // The server's end waits for the end of the session, which would take a day.
}

TEST("a client that cannot be waited for is not") {
  Serving serving;
  ReturnServer server(0, [&](ServerLink& link) { serving(link); });
  auto session = connectTo(server.port(), 60);
  CHECK_EQ(session->graceSeconds(), 0u);
  Caller caller(*session, 1, 1);
  for (int n = 0; n < 50; ++n) caller.act();
}

}  // namespace
}  // namespace millpond
