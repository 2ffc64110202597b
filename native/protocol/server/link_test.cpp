// SPDX-License-Identifier: Apache-2.0
// A session over a TCP link that is cut repeatedly: every command and every reply arrives exactly once, complete and in
// order.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <map>
#include <numeric>

#include "testing/servers/cutting_proxy.h"
#include "testing/servers/session_server.h"

namespace millpond {
namespace {

using testing::CuttingProxy;

constexpr uint16_t kTakeData = 1;       ///< number, then data generated from it
constexpr uint16_t kTellCount = 2;      ///< answered with the number of commands before it
constexpr uint16_t kGiveData = 3;       ///< answered with that many bytes
constexpr uint16_t kGiveLanding = 4;    ///< this many bytes land at that address
constexpr uint16_t kNeverAnswered = 5;  ///< never answered

struct Ask {
  uint64_t number;
  uint64_t bytes;
  uint64_t address;
};

/// The link part of a worker that keeps accepting connections.
class ReturnServer {
 public:
  using Serve = std::function<void(ServerLink&)>;

  ReturnServer(uint32_t graceSeconds, Serve serve) : grace_(graceSeconds), serve_(std::move(serve)) {
    auto listener = listenTcp("127.0.0.1", port_);
    CHECK(bool(listener));
    listener_ = std::move(*listener);
    door_ = std::thread([this] { admit(); });
  }
  ~ReturnServer() {
    stop_.store(true);
    door_.join();
    if (session_.joinable()) session_.join();
  }
  ReturnServer(const ReturnServer&) = delete;
  ReturnServer& operator=(const ReturnServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  void admit() {
    while (!stop_.load()) {
      pollfd wait{listener_.get(), POLLIN, 0};
      if (::poll(&wait, 1, 5) != 1) continue;
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) continue;
      tuneTcp(socket.get());
      std::vector<std::byte> bytes(kHelloFixedBytes);
      if (!receiveExactly(socket.get(), bytes, 20'000)) continue;  // cut
      auto rest = helloRest(std::span(bytes).first<kHelloFixedBytes>());
      CHECK(bool(rest));
      bytes.resize(kHelloFixedBytes + *rest);
      if (!receiveExactly(socket.get(), std::span(bytes).subspan(kHelloFixedBytes), 20'000)) continue;
      auto hello = decodeHello(bytes);
      CHECK(bool(hello));
      if (hello->resumption) {
        CHECK(hello->resumption->secret == SessionSecret{std::byte{42}});
        CHECK(hello->resumption->attempt > attempt_);
        attempt_ = hello->resumption->attempt;
        link_->offer(std::move(socket), hello->resumption->received);
        continue;
      }
      CHECK(!link_);
      Welcome welcome = SessionTestServer::welcome();
      welcome.graceSeconds = std::min(grace_, hello->graceSeconds);
      welcome.secret = {std::byte{42}};
      CHECK(bool(sendAll(socket.get(), encode(welcome))));
      auto memory = SessionMemory::create();
      CHECK(bool(memory));
      link_ = std::make_unique<ServerLink>(std::move(socket), std::move(*memory), true, welcome.graceSeconds);
      session_ = std::thread([this] { serve_(*link_); });
    }
  }

  const uint32_t grace_;
  const Serve serve_;
  uint16_t port_ = 0;
  uint32_t attempt_ = 0;
  UniqueFd listener_;
  std::unique_ptr<ServerLink> link_;
  std::atomic<bool> stop_{false};
  std::thread door_;
  std::thread session_;
};

std::unique_ptr<Session> connectTo(uint16_t port, uint32_t graceSeconds) {
  Endpoint endpoint;
  endpoint.tcpHost = "127.0.0.1";
  endpoint.tcpPort = port;
  endpoint.graceSeconds = graceSeconds;
  auto session = Session::connect(endpoint);
  if (!session) testing::fail(__FILE__, __LINE__, session.error().message);
  (*session)->onLanding([](uint64_t, uint64_t) { return true; });
  return std::move(*session);
}

std::vector<std::byte> bytesOf(uint64_t seed, size_t count) {
  std::vector<std::byte> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = testByte(seed, i);
  return out;
}

/// Serves the client below; checks that the commands arrive in order and complete.
class Serving {
 public:
  void operator()(ServerLink& link) {
    link_ = &link;
    link.collectReplies();  // as workers do
    SessionTestServer::loop(
        link,
        [&](const ServerLink::Frame& frame) {
          Ask ask{};
          CHECK(frame.body().size() >= sizeof(ask));
          std::memcpy(&ask, frame.body().data(), sizeof(ask));
          return execute(frame, ask);
        },
        [&] { return takeBack(); });
  }
  uint64_t posted(uint32_t thread) const { return posted_.at(thread); }

 private:
  bool execute(const ServerLink::Frame& frame, const Ask& ask) {
    const uint32_t request = frame.header.request;
    switch (frame.header.op) {
      case kTakeData: {
        CHECK_EQ(ask.number, ++posted_[frame.header.thread]);
        const auto data = frame.body().subspan(sizeof(ask));
        CHECK_EQ(data.size(), wire::padded(ask.bytes));
        const auto wanted = bytesOf(ask.number, ask.bytes);
        CHECK(std::equal(wanted.begin(), wanted.end(), data.begin()));
        return true;
      }
      case kTellCount: {
        const uint64_t count = posted_[frame.header.thread];
        return link_->reply(wire::ReplyKind::kResult, kTellCount, request, 0, std::as_bytes(std::span(&count, 1)));
      }
      case kGiveData:
        for (uint64_t at = 0; at < ask.bytes; at += wire::kChunkBytes)
          sendPiece(request, bytesOf(ask.number + at, std::min<uint64_t>(wire::kChunkBytes, ask.bytes - at)));
        return link_->reply(wire::ReplyKind::kResult, kGiveData, request, 0);
      case kGiveLanding: {
        const wire::Landing header{ask.address, ask.bytes, 0, 0};
        const auto data = bytesOf(ask.number, ask.bytes);
        return link_->reply(wire::ReplyKind::kLanding, 0, 0, 0, std::as_bytes(std::span(&header, 1)), std::span(data));
      }
      case kNeverAnswered: return true;
      default: testing::fail(__FILE__, __LINE__, "no such command");
    }
  }
  void sendPiece(uint32_t request, std::vector<std::byte> bytes) {
    const auto padding = static_cast<uint16_t>(wire::padded(bytes.size()) - bytes.size());
    if (bytes.size() < wire::kChunkBytes / 2) {
      CHECK(link_->reply(wire::ReplyKind::kData, padding, request, 0, std::span<const std::byte>(bytes)));
      return;
    }
    lent_.push_back({0, std::move(bytes)});
    CHECK(link_->replyLending(wire::ReplyKind::kData, padding, request, {}, lent_.back().second));
    lent_.back().first = link_->replied();
  }
  bool takeBack() {
    bool some = false;
    for (; !lent_.empty() && lent_.front().first <= link_->acknowledged(); lent_.pop_front()) {
      // From now on the data may be arbitrary.
      std::fill(lent_.front().second.begin(), lent_.front().second.end(), std::byte{0xee});
      some = true;
    }
    return some;
  }

  ServerLink* link_ = nullptr;
  std::map<uint32_t, uint64_t> posted_;
  std::deque<std::pair<uint64_t, std::vector<std::byte>>> lent_;
};

auto fill(const Ask& ask) {
  return [ask](std::byte* place) { std::memcpy(place, &ask, sizeof(ask)); };
}

/// One thread of a program.
class Caller {
 public:
  Caller(Session& session, uint32_t thread, uint32_t seed) : session_(session), thread_(thread), random_(seed) {}

  void act() {
    switch (random_() % 8) {
      case 0: return fetch(random_() % 4 ? random_() % 5000 : random_() % (size_t{2} << 20));
      case 1: return land(random_() % 3000 + 1);
      case 2: return echo();
      case 3: return post(random_() % (size_t{200} << 10), Session::Data::kCallers);
      case 4: return lend();
      default:
        for (auto n = random_() % 100; n; --n) post(random_() % 200, Session::Data::kCallers);
    }
  }
  void echo() {
    uint64_t count = 0;
    Session::Answer answer;
    answer.body = std::as_writable_bytes(std::span(&count, 1));
    CHECK_EQ(session_.wait(kTellCount, caller(), sizeof(Ask), fill({0, 0, 0}), answer), 0);
    CHECK_EQ(count, posted_);
    CHECK(landing_ == landed_);
  }

 private:
  Session::Caller caller() const { return {1, thread_}; }
  void post(size_t bytes, Session::Data whose) {
    std::vector<std::byte> data = bytesOf(++posted_, bytes);
    CHECK(session_.postWithData(kTakeData, caller(), sizeof(Ask), fill({posted_, bytes, 0}), data, whose));
    if (whose == Session::Data::kLent) lent_.push_back(std::move(data));
  }
  void lend() {
    for (int n = 0; n < 6; ++n) post(random_() % (size_t{256} << 10), Session::Data::kLent);
    echo();
    for (auto& each : lent_) std::fill(each.begin(), each.end(), std::byte{0xdd});
    lent_.clear();
  }
  void fetch(size_t bytes) {
    std::vector<std::byte> to(bytes + 8, std::byte{0x77});
    Session::Answer answer;
    answer.data = std::span(to).first(bytes);
    const uint64_t seed = random_();
    CHECK_EQ(session_.wait(kGiveData, caller(), sizeof(Ask), fill({seed, bytes, 0}), answer), 0);
    CHECK_EQ(answer.dataBytes, bytes);
    for (size_t at = 0; at < bytes; at += wire::kChunkBytes) {
      const auto wanted = bytesOf(seed + at, std::min(wire::kChunkBytes, bytes - at));
      CHECK(std::memcmp(to.data() + at, wanted.data(), wanted.size()) == 0);
    }
    for (size_t i = bytes; i < to.size(); ++i) CHECK(to[i] == std::byte{0x77});
  }
  void land(size_t bytes) {
    landing_.assign(bytes, std::byte{0});
    landed_ = bytesOf(posted_ + 7, bytes);
    const Ask ask{posted_ + 7, bytes, reinterpret_cast<uint64_t>(landing_.data())};
    CHECK(session_.post(kGiveLanding, caller(), sizeof(ask), fill(ask)));
    echo();
  }

  Session& session_;
  const uint32_t thread_;
  std::minstd_rand random_;
  uint64_t posted_ = 0;
  std::vector<std::byte> landing_, landed_;
  std::deque<std::vector<std::byte>> lent_;
};

TEST("a session whose link is cut 150 times goes on as if nothing had happened") {
  const char* given = std::getenv("MILLPOND_TEST_SEED");
  const auto seed = given ? static_cast<uint32_t>(std::atoi(given)) : 4711u;
  constexpr uint32_t kCuts = 150;
  std::atomic<uint32_t> cuts{0};
  Serving serving;
  ReturnServer server(3600, [&](ServerLink& link) { serving(link); });
  CuttingProxy proxy(seed, cuts);
  proxy.start(server.port(), kCuts);
  auto session = connectTo(proxy.port(), 3600);
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
  CHECK_EQ(cuts.load(), kCuts);
  session->onLost([](const std::string&) {});
  session.reset();
}

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
