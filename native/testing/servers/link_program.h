// SPDX-License-Identifier: Apache-2.0
// A session over a TCP link of a few commands: the worker's side, which checks that each arrives once, complete and in order, and
// threads of a program, which check the replies.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "testing/servers/session_server.h"

namespace millpond::testing {

inline constexpr uint16_t kTakeData = 1;       ///< number, then data generated from it
inline constexpr uint16_t kTellCount = 2;      ///< answered with the number of commands before it
inline constexpr uint16_t kGiveData = 3;       ///< answered with that many bytes
inline constexpr uint16_t kGiveLanding = 4;    ///< this many bytes land at that address
inline constexpr uint16_t kNeverAnswered = 5;  ///< never answered

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
      if (hello->lane) {
        CHECK(hello->lane->secret == SessionSecret{std::byte{42}});
        if (hello->lane->attempt == attempt_)
          link_->offerLane(std::move(socket), hello->lane->lane, hello->lane->count);
        continue;
      }
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
      link_->receiveLanesInto([](size_t wanted) {
        return std::shared_ptr<std::byte>(new std::byte[wanted], std::default_delete<std::byte[]>());
      });
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

inline std::unique_ptr<Session> connectTo(uint16_t port, uint32_t graceSeconds, uint32_t lanes = 0) {
  Endpoint endpoint;
  endpoint.tcpHost = "127.0.0.1";
  endpoint.tcpPort = port;
  endpoint.graceSeconds = graceSeconds;
  endpoint.lanes = lanes;
  auto session = Session::connect(endpoint);
  if (!session) testing::fail(__FILE__, __LINE__, session.error().message);
  (*session)->onLanding([](uint64_t, uint64_t) { return true; });
  return std::move(*session);
}

inline std::vector<std::byte> bytesOf(uint64_t seed, size_t count) {
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
        const auto body = std::as_bytes(std::span(&header, 1));
        auto data = bytesOf(ask.number, ask.bytes);
        if (ask.bytes < wire::kLaneBytes)
          return link_->reply(wire::ReplyKind::kLanding, 0, 0, 0, body, std::span(std::as_const(data)));
        lent_.push_back({0, std::move(data)});
        const bool isSent = link_->replyLending(wire::ReplyKind::kLanding, 0, 0, body, lent_.back().second);
        lent_.back().first = link_->replied();
        return isSent;
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

inline auto fill(const Ask& ask) {
  return [ask](std::byte* place) { std::memcpy(place, &ask, sizeof(ask)); };
}

/// One thread of a program.
class Caller {
 public:
  Caller(Session& session, uint32_t thread, uint32_t seed) : session_(session), thread_(thread), random_(seed) {}

  void act() {
    session_.expectBulk(SIZE_MAX);
    switch (random_() % 8) {
      case 0: return fetch(random_() % 4 ? random_() % 5000 : random_() % (size_t{2} << 20));
      case 1: return land(random_() % (random_() % 2 ? 3000 : wire::kChunkBytes) + 1);
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

}  // namespace millpond::testing
