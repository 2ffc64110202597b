// SPDX-License-Identifier: Apache-2.0
// Sessions that are parked at any moment and continue with another worker: no command is lost or executed twice, and
// callers notice nothing.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "testing/servers/session_server.h"

namespace millpond {
namespace {

constexpr uint16_t kPost = 1;
constexpr uint32_t kGrace = 20;

struct Post {
  uint64_t thread;
  uint64_t sequence;
};

auto filled(const Post& body) {
  return [body](std::byte* place) { std::memcpy(place, &body, sizeof(body)); };
}

/// Consecutive workers, each with one session, which it parks as often as it can.
class Workers {
 public:
  /// `loseEvery`: one in this many requested workers has ended when it is called; 0: none.
  Workers(Carrier carrier, unsigned threads, unsigned loseEvery = 0)
      : carrier_(carrier), loseEvery_(loseEvery), next_(threads, 0) {}

  Endpoint open() {
    const std::lock_guard lock(mutex_);
    ++opened_;
    if (loseEvery_ && opened_ % loseEvery_ == 0) {
      Endpoint nobody;
      nobody.unixPath = "/nonexistent/data.sock";
      nobody.tcpHost = "127.0.0.1";
      nobody.tcpPort = 1;
      nobody.canPark = true;
      nobody.graceSeconds = kGrace;
      return nobody;
    }
    servers_.push_back(std::make_unique<SessionTestServer>(
        carrier_, [this](ServerLink& link) { serve(link); },
        [this](const Hello& hello) {
          CHECK(hello.canPark);
          CHECK_EQ(hello.isParked, greeted_++ != 0);
          Welcome welcome = SessionTestServer::welcome();
          welcome.graceSeconds = kGrace;
          return welcome;
        },
        kGrace));
    Endpoint endpoint = servers_.back()->endpoint();
    endpoint.canPark = true;
    endpoint.graceSeconds = kGrace;
    return endpoint;
  }

  /// Waits until the last one has detected that its client is gone.
  void join() {
    const std::lock_guard lock(mutex_);
    servers_.clear();
  }
  unsigned parked() const { return parked_; }
  /// The executed commands of a thread.
  uint64_t taken(size_t thread) const { return next_[thread]; }

 private:
  void serve(ServerLink& link) {
    std::minstd_rand random(++served_);
    ServerLink::Frame frame;
    for (;;) {
      switch (link.next(frame)) {
        case ServerLink::Next::kFrame:
          take(link, frame);
          link.release(link.position());
          continue;
        case ServerLink::Next::kGone: return;
        case ServerLink::Next::kBroken: testing::fail(__FILE__, __LINE__, link.problem());
        case ServerLink::Next::kNothing: break;
      }
      if (random() % 4 != 0 && link.park()) {
        ++parked_;
        return;
      }
      if (!link.ready()) link.sleep(200'000);
    }
  }

  void take(ServerLink& link, const ServerLink::Frame& frame) {
    Post body;
    CHECK_EQ(frame.body().size(), sizeof(body));
    std::memcpy(&body, frame.body().data(), sizeof(body));
    CHECK(body.thread < next_.size());
    const std::lock_guard lock(nextMutex_);
    CHECK_EQ(body.sequence, next_[body.thread]);
    ++next_[body.thread];
    if (frame.header.request == 0) return;
    const uint64_t answer = body.sequence * 3;
    CHECK(link.reply(wire::ReplyKind::kResult, 0, frame.header.request, 0, std::as_bytes(std::span(&answer, 1))));
  }

  const Carrier carrier_;
  const unsigned loseEvery_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SessionTestServer>> servers_;
  unsigned opened_ = 0;
  std::atomic<unsigned> greeted_{0};
  std::atomic<unsigned> served_{0};
  std::atomic<unsigned> parked_{0};
  std::mutex nextMutex_;
  std::vector<uint64_t> next_;
};

void nap(uint64_t ns) {
  const timespec time{0, static_cast<long>(ns)};
  ::nanosleep(&time, nullptr);
}

/// Threads that post and wait, with pauses in which the session may be parked, until that has happened `parks` times.
void useWhileParked(Carrier carrier, unsigned threads, unsigned parks, uint64_t longestNapNs, unsigned loseEvery = 0) {
  Workers workers(carrier, threads, loseEvery);
  auto session = Session::connect(workers.open());
  CHECK(bool(session));
  (*session)->onParked([&](bool&) -> Result<Endpoint> { return workers.open(); });
  (*session)->onLost([](const std::string& why) { testing::fail(__FILE__, __LINE__, why); });
  std::vector<std::thread> callers;
  std::vector<uint64_t> made(threads, 0);
  for (unsigned t = 0; t < threads; ++t) {
    callers.emplace_back([&, t] {
      std::minstd_rand random(100 + t);
      const Session::Caller caller{1, t + 1};
      while (workers.parked() < parks) {
        const Post body{t, made[t]++};
        if (random() % 3 != 0) {
          CHECK((*session)->post(kPost, caller, sizeof(body), filled(body)));
        } else {
          uint64_t value = 0;
          Session::Answer answer;
          answer.body = std::as_writable_bytes(std::span(&value, 1));
          CHECK_EQ((*session)->wait(kPost, caller, sizeof(body), filled(body), answer), 0);
          CHECK_EQ(value, body.sequence * 3);
        }
        CHECK_EQ((*session)->failure(), 0);
        if (random() % 8 == 0) nap(random() % longestNapNs);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  Session::Answer answer;
  const Post last{0, made[0]++};
  CHECK_EQ((*session)->wait(kPost, {1, 1}, sizeof(last), filled(last), answer), 0);
  session->reset();
  workers.join();
  for (unsigned t = 0; t < threads; ++t) CHECK_EQ(workers.taken(t), made[t]);
}

TEST("a session over shared memory that is parked at any moment loses no command and repeats none") {
  useWhileParked(Carrier::kSharedMemory, 1, 150, 100'000);
  useWhileParked(Carrier::kSharedMemory, 4, 150, 2'000'000);
}

TEST("a session over TCP that is parked when its client agrees loses no command and repeats none") {
  useWhileParked(Carrier::kTcp, 2, 2, 1'500'000'000);
}

TEST("a worker that is gone when it is called is asked for again") {
  useWhileParked(Carrier::kSharedMemory, 2, 30, 500'000, 3);
}

TEST("a parked session whose worker nobody has any more is lost, with the reason, for all who call") {
  for (const Carrier carrier : kCarriers) {
    Workers workers(carrier, 1);
    auto session = Session::connect(workers.open());
    CHECK(bool(session));
    std::string reason;
    (*session)->onLost([&](const std::string& why) { reason = why; });
    (*session)->onParked([](bool&) -> Result<Endpoint> { return Error{"the claim has ended"}; });
    while (workers.parked() == 0) nap(1'000'000);
    Session::Answer answer;
    const Post body{0, 0};
    CHECK_EQ((*session)->wait(kPost, {1, 1}, sizeof(body), filled(body), answer), kSessionLost);
    CHECK_EQ(reason, "the claim has ended");
    CHECK(!(*session)->post(kPost, {1, 1}, sizeof(body), filled(body)));
    session->reset();
    workers.join();
    CHECK_EQ(workers.taken(0), 0u);
  }
}

TEST("a command for which nobody finds a worker in time is taken back, and the next one asks again") {
  for (const Carrier carrier : kCarriers) {
    Workers workers(carrier, 1);
    auto session = Session::connect(workers.open());
    CHECK(bool(session));
    (*session)->onLost([](const std::string& why) { testing::fail(__FILE__, __LINE__, why); });
    unsigned refusals = 2;
    (*session)->onParked([&](bool& mayAskAgain) -> Result<Endpoint> {
      if (refusals == 0) return workers.open();
      --refusals;
      mayAskAgain = true;
      return Error{"no GPU in time"};
    });
    while (!(*session)->isParked()) nap(1'000'000);
    Session::Answer answer;
    const Post first{0, 0}, second{0, 1};
    CHECK(!(*session)->post(kPost, {1, 1}, sizeof(first), filled(first)));
    CHECK_EQ((*session)->wait(kPost, {1, 1}, sizeof(first), filled(first), answer), kSessionLost);
    CHECK(!(*session)->lost() && (*session)->isParked());
    CHECK((*session)->post(kPost, {1, 1}, sizeof(first), filled(first)));
    CHECK_EQ((*session)->wait(kPost, {1, 1}, sizeof(second), filled(second), answer), 0);
    session->reset();
    workers.join();
    CHECK_EQ(workers.taken(0), 2u);
  }
}

TEST("a parked session is made again by the journal that its worker left, as its client has revised it") {
  for (const Carrier carrier : kCarriers) {
    std::vector<std::byte> left(carrier == Carrier::kTcp ? size_t{100} << 10 : wire::kMaxJournalBytes);
    for (size_t i = 0; i < left.size(); ++i) left[i] = testByte(3, i);
    const auto judge = [](const Hello&) {
      Welcome welcome = SessionTestServer::welcome();
      welcome.graceSeconds = kGrace;
      welcome.parks = true;
      return welcome;
    };
    SessionTestServer first(
        carrier,
        [&](ServerLink& link) {
          ServerLink::Frame frame;
          while (!link.park(left)) {
            CHECK(link.next(frame) == ServerLink::Next::kNothing);
            link.sleep(1'000'000);
          }
        },
        judge, kGrace);
    std::vector<uint16_t> ops;
    auto second = std::make_unique<SessionTestServer>(
        carrier,
        [&](ServerLink& link) {
          SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
            ops.push_back(frame.header.op);
            return frame.header.request == 0 || link.reply(wire::ReplyKind::kResult, 0, frame.header.request, 0);
          });
        },
        judge, kGrace);
    const auto canPark = [](Endpoint endpoint) {
      endpoint.canPark = true;
      endpoint.graceSeconds = kGrace;
      return endpoint;
    };
    auto session = Session::connect(canPark(first.endpoint()));
    CHECK(bool(session) && (*session)->parks());
    (*session)->onLost([](const std::string& why) { testing::fail(__FILE__, __LINE__, why); });
    (*session)->onParked([&](bool&) -> Result<Endpoint> { return canPark(second->endpoint()); });
    Session::Answer answer;
    const Post body{0, 0};
    const std::vector<std::byte> revised(left.begin(), left.begin() + static_cast<ptrdiff_t>(left.size() / 2));
    (*session)->onRestore([&](Session& fresh, std::span<const std::byte> journal) -> Status {
      CHECK(std::equal(journal.begin(), journal.end(), revised.begin(), revised.end()));
      for (uint16_t op = 10; op < 13; ++op) CHECK_EQ(fresh.wait(op, {1, 1}, sizeof(body), filled(body), answer), 0);
      return Done{};
    });
    while (!(*session)->isParked()) nap(1'000'000);
    CHECK((*session)->reviseJournal([&](std::span<const std::byte> journal) {
      CHECK(std::equal(journal.begin(), journal.end(), left.begin(), left.end()));
      return revised;
    }));
    CHECK((*session)->post(20, {1, 1}, sizeof(body), filled(body)));
    CHECK_EQ((*session)->wait(21, {1, 1}, sizeof(body), filled(body), answer), 0);
    CHECK(!(*session)->reviseJournal([](std::span<const std::byte>) { return std::vector<std::byte>{}; }));
    session->reset();
    second.reset();
    CHECK(ops == (std::vector<uint16_t>{10, 11, 12, 20, 21}));
  }
}

TEST("another kind of device is not gone on with") {
  const auto judge = [](std::string name) {
    return [name](const Hello&) {
      Snapshot snapshot;
      snapshot.driverVersion = 13000;
      snapshot.devices.resize(1);
      snapshot.devices[0].name = name;
      return Welcome{wire::kProtocolVersion, kApiHash, Admission::kWelcome, "", snapshot.encode()};
    };
  };
  std::atomic<bool> isParked{false};
  const auto serve = [&](ServerLink& link) {
    while (!link.park()) link.sleep(1'000'000);
    isParked = true;
  };
  SessionTestServer first(Carrier::kSharedMemory, serve, judge("Small GPU"));
  SessionTestServer second(Carrier::kSharedMemory, nullptr, judge("Large GPU"));
  Endpoint endpoint = first.endpoint();
  endpoint.canPark = true;
  auto session = Session::connect(endpoint);
  CHECK(bool(session));
  std::string reason;
  (*session)->onLost([&](const std::string& why) { reason = why; });
  (*session)->onParked([&](bool&) -> Result<Endpoint> { return second.endpoint(); });
  while (!isParked) nap(1'000'000);
  Session::Answer answer;
  const Post body{0, 0};
  CHECK_EQ((*session)->wait(kPost, {1, 1}, sizeof(body), filled(body), answer), kSessionLost);
  CHECK_EQ(
      reason,
      "the granted GPU differs from the one that the program has seen: it is a Large GPU, not a Small GPU. Start the "
      "program again. [MILLPOND_E_IMPOSSIBLE]");
}

}  // namespace
}  // namespace millpond
