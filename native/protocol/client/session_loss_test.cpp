// SPDX-License-Identifier: Apache-2.0
// A client's session whose worker refuses it, goes away, or sends malformed data.
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "testing/servers/session_server.h"

namespace millpond {
namespace {

constexpr int kRounds = 40;
constexpr uint16_t kOp = 1;

void nothing(std::byte*) {}

int32_t waitOnce(Session& session) {
  Session::Answer answer;
  return session.wait(kOp, {1, 1}, 0, nothing, answer);
}

struct Loss {
  std::atomic<int> times{0};
  std::string reason;
  void watch(Session& session) {
    session.onLost([this](const std::string& why) {
      reason = why;
      ++times;
    });
  }
};

TEST("a refused greeting tells the worker's reason") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, nullptr, [](const Hello& hello) {
      Welcome w;
      w.admission = Admission::kProtocolMismatch;
      w.message = "the client speaks protocol " + std::to_string(hello.protocol) + ", this worker 1";
      return w;
    });
    Hello old{};
    old.protocol = 99;
    old.carrier = carrier;
    auto session = Session::connect(server.endpoint(), &old);
    CHECK(!session);
    CHECK(session.error().message.ends_with(": the client speaks protocol 99, this worker 1"));
    CHECK(session.error().message.starts_with("worker at "));
  }
}

TEST("a greeting tells who calls") {
  for (const Carrier carrier : kCarriers) {
    Hello got;
    {
      SessionTestServer server(carrier, nullptr, [&](const Hello& hello) {
        got = hello;
        return SessionTestServer::welcome();
      });
      auto session = server.connect();
      CHECK_EQ(session->snapshot().devices.at(0).name, "Test GPU");
      CHECK_EQ(session->remote(), carrier == Carrier::kTcp);
    }
    CHECK_EQ(got.protocol, wire::kProtocolVersion);
    CHECK_EQ(got.apiHash, kApiHash);
    CHECK_EQ(got.ticket, "ticket");
    CHECK_EQ(got.program, "session_test");
    CHECK_EQ(got.pid, static_cast<uint32_t>(::getpid()));
  }
}

TEST("a broken description of the devices is refused") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, nullptr, [](const Hello&) {
      Welcome w = SessionTestServer::welcome();
      w.snapshot.pop_back();
      return w;
    });
    auto session = Session::connect(server.endpoint());
    CHECK(!session);
    CHECK(session.error().message.ends_with("the worker's description of its devices is broken"));
  }
}

TEST("a worker that is not there, or hangs up at once, is an error") {
  Endpoint nowhere;
  CHECK_EQ(Session::connect(nowhere).error().message, "the worker has no address");
  nowhere.unixPath = "/no/such/socket";
  CHECK(!Session::connect(nowhere));
  uint16_t port = 0;
  auto listener = listenTcp("127.0.0.1", port);
  CHECK(bool(listener));
  std::thread slammer([&] {
    pollfd wait{listener->get(), POLLIN, 0};
    CHECK_EQ(::poll(&wait, 1, 10'000), 1);
    UniqueFd socket(::accept(listener->get(), nullptr, nullptr));
  });
  Endpoint endpoint;
  endpoint.tcpHost = "127.0.0.1";
  endpoint.tcpPort = port;
  auto session = Session::connect(endpoint);
  slammer.join();
  CHECK(!session);
  CHECK(session.error().message.starts_with("worker at 127.0.0.1:"));
}

TEST("the transport is the one that was asked for") {
  SessionTestServer local(Carrier::kSharedMemory, nullptr);
  Endpoint endpoint = local.endpoint();
  endpoint.transport = TransportChoice::Tcp;
  CHECK_EQ(Session::connect(endpoint).error().message, "the worker has no address");
  endpoint = local.endpoint();
  endpoint.tcpHost = "127.0.0.1";
  endpoint.tcpPort = 1;
  CHECK(!(*Session::connect(endpoint))->remote());
  // If the socket cannot be reached, TCP is used, unless only shared memory is allowed.
  SessionTestServer far(Carrier::kTcp, nullptr);
  endpoint = far.endpoint();
  endpoint.unixPath = "/no/such/socket";
  endpoint.transport = TransportChoice::SharedMemory;
  CHECK(!Session::connect(endpoint));
  endpoint.transport = TransportChoice::Auto;
  CHECK((*Session::connect(endpoint))->remote());
}

TEST("when the worker goes, everybody who waits learns it, and the reason is told once") {
  for (const Carrier carrier : kCarriers) {
    for (int round = 0; round < kRounds / 5; ++round) {
      constexpr unsigned kThreads = 24;
      SessionTestServer server(carrier, [&](ServerLink& link) {
        unsigned got = 0;
        SessionTestServer::loop(link, [&](const ServerLink::Frame&) { return ++got < kThreads; });
      });
      auto session = server.connect();
      Loss loss;
      loss.watch(*session);
      std::vector<std::thread> callers;
      for (unsigned t = 0; t < kThreads; ++t) callers.emplace_back([&] { CHECK_EQ(waitOnce(*session), kSessionLost); });
      for (auto& caller : callers) caller.join();
      CHECK_EQ(loss.times.load(), 1);
      CHECK(!loss.reason.empty());
      CHECK(session->lost());
      // From now on every call returns immediately.
      CHECK_EQ(waitOnce(*session), kSessionLost);
      CHECK(!session->post(kOp, {}, 0, nothing));
      CHECK(!session->postWithData(kOp, {}, 0, nothing, std::vector<std::byte>(100)));
      session->flush();
      CHECK_EQ(loss.times.load(), 1);
    }
  }
}

TEST("the reason that the worker gives for the end is the one that is told") {
  for (const Carrier carrier : kCarriers) {
    for (int round = 0; round < kRounds; ++round) {
      const std::string reason = "the claim was released, round " + std::to_string(round);
      SessionTestServer server(carrier, [&](ServerLink& link) {
        SessionTestServer::loop(link, [&](const ServerLink::Frame&) {
          link.end(reason);
          return false;
        });
      });
      auto session = server.connect();
      Loss loss;
      loss.watch(*session);
      // Whether a thread waits, or one only posts until it gets the failure.
      if (round % 2) {
        CHECK_EQ(waitOnce(*session), kSessionLost);
      } else {
        const std::vector<std::byte> data(100'000);
        while (session->postWithData(kOp, {}, 0, nothing, data)) {
        }
      }
      CHECK_EQ(loss.times.load(), 1);
      CHECK_EQ(loss.reason, reason);
    }
  }
}

TEST("answers that were given before the worker went are not lost") {
  for (const Carrier carrier : kCarriers) {
    for (int round = 0; round < kRounds; ++round) {
      constexpr unsigned kThreads = 4;
      SessionTestServer server(carrier, [&](ServerLink& link) {
        std::vector<uint32_t> requests;
        SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
          requests.push_back(frame.header.request);
          if (requests.size() < kThreads) return true;
          for (const uint32_t request : requests) CHECK(link.reply(wire::ReplyKind::kResult, 0, request, 3));
          return false;
        });
      });
      auto session = server.connect();
      std::vector<std::thread> callers;
      for (unsigned t = 0; t < kThreads; ++t) callers.emplace_back([&] { CHECK_EQ(waitOnce(*session), 3); });
      for (auto& caller : callers) caller.join();
    }
  }
}

TEST("a worker that dies while it sends data writes into nobody's memory afterwards") {
  for (const Carrier carrier : kCarriers) {
    for (int round = 0; round < kRounds / 5; ++round) {
      constexpr unsigned kReaders = 6;
      constexpr uint32_t kPiece = 32768;
      constexpr size_t kRoom = 64 * kPiece;
      SessionTestServer server(carrier, [&](ServerLink& link) {
        std::vector<uint32_t> requests;
        ServerLink::Frame frame;
        while (requests.size() < kReaders) {
          if (link.next(frame) != ServerLink::Next::kFrame)
            link.sleep(1'000'000);
          else if (frame.header.request)
            requests.push_back(frame.header.request);
          link.release(link.position());
        }
        // Commands are no longer accepted, so that posting threads soon detect the loss of the worker, while data still
        // arrives.
        const std::vector<std::byte> data(wire::kChunkBytes, std::byte{0x44});
        if (!link.remote()) ::shutdown(link.socket(), SHUT_RDWR);
        for (uint32_t i = 0; i < kReaders * (kRoom / kPiece); ++i) {
          const uint32_t request = requests[i % kReaders];
          if (link.remote()) {
            if (i >= kReaders * 2 || !link.reply(wire::ReplyKind::kData, 0, request, 0, std::span(data))) return;
            continue;
          }
          const uint32_t chunk = i % wire::kStagingChunks;
          auto& busy = link.memory().control().chunkBusy[chunk];
          for (const int64_t end = monotonicNs() + 100'000'000; busy.load() != 0; std::this_thread::yield())
            if (monotonicNs() > end) return;
          busy.store(1);
          const wire::ChunkReady ready{chunk, kPiece};
          if (!link.reply(wire::ReplyKind::kChunk, 0, request, 0, std::as_bytes(std::span(&ready, 1)))) return;
          // Threads that wait for space check again.
          auto& sleeps = link.memory().control().submit.producerSleeps;
          sleeps.store(0);
          futexWake(sleeps);
        }
      });
      auto session = server.connect();
      Loss loss;
      loss.watch(*session);
      const std::vector<std::byte> other(kRoom, std::byte{0x55});
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < kReaders; ++t)
        threads.emplace_back([&] {
          std::vector<std::byte> to(kRoom);
          Session::Answer answer;
          answer.data = to;
          CHECK_EQ(session->wait(kOp, {1, 1}, 0, nothing, answer), kSessionLost);
          // The memory belongs to the caller again.
          std::memset(to.data(), 0x55, to.size());
          CHECK_EQ(std::memcmp(to.data(), other.data(), to.size()), 0);
        });
      for (unsigned t = 0; t < 3; ++t)
        threads.emplace_back([&] {
          const std::vector<std::byte> data(250'000);
          while (session->postWithData(kOp, {}, 0, nothing, data)) {
          }
        });
      for (auto& thread : threads) thread.join();
      CHECK_EQ(loss.times.load(), 1);
    }
  }
}

// Nonsense

/// The client waits with a buffer for data; the worker sends `send`; the session must end without a crash.
template <typename Send>
void checkNonsense(Carrier carrier, Send&& send) {
  SessionTestServer server(carrier, [&](ServerLink& link) {
    SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
      send(link, frame.header.request);
      // The connection stays open: the malformed data ends the session.
      pollfd gone{link.socket(), POLLRDHUP, 0};
      const int64_t deadline = monotonicNs() + 20'000'000'000;
      while (monotonicNs() < deadline && ::poll(&gone, 1, 100) == 0) {
      }
      CHECK(gone.revents != 0);
      return false;
    });
  });
  auto session = server.connect();
  Loss loss;
  loss.watch(*session);
  std::vector<std::byte> to(1000, std::byte{0x66});
  std::array<std::byte, 32> body{};
  Session::Answer answer;
  answer.body = body;
  answer.data = std::span(to).first(800);
  CHECK_EQ(session->wait(kOp, {1, 1}, 0, nothing, answer), kSessionLost);
  CHECK_EQ(loss.times.load(), 1);
  for (size_t i = 800; i < to.size(); ++i) CHECK(to[i] == std::byte{0x66});
}

/// Puts raw bytes into the worker's stream of replies.
void sendRaw(ServerLink& link, std::span<const std::byte> bytes) {
  if (link.remote()) {
    CHECK(bool(sendAll(link.socket(), bytes)));
    return;
  }
  SharedControl& control = link.memory().control();
  RingProducer ring(control.reply, link.memory().reply(), wire::kReplyBytes);
  CHECK(ring.hasSpace(bytes.size()));
  std::memcpy(ring.place(), bytes.data(), bytes.size());
  ring.advance(bytes.size());
  ring.publish();
}

template <typename Fixed>
std::vector<std::byte> frame(wire::ReplyHeader header, const Fixed& body) {
  header.bytes = sizeof(header) + sizeof(body);
  std::vector<std::byte> out(header.bytes);
  std::memcpy(out.data(), &header, sizeof(header));
  std::memcpy(out.data() + sizeof(header), &body, sizeof(body));
  return out;
}

TEST("replies that make no sense end the session") {
  using wire::ReplyKind;
  struct Case {
    const char* what;
    bool ring, socket;
    std::function<std::vector<std::byte>(uint32_t request)> make;
  };
  const auto raw = [](wire::ReplyHeader header) {
    std::vector<std::byte> out(sizeof(header));
    std::memcpy(out.data(), &header, sizeof(header));
    return out;
  };
  const uint64_t some = 0;
  // clang-format off
  const std::vector<Case> cases = {
      {"length 0", true, true, [&](uint32_t r) { return raw({0, ReplyKind::kResult, 0, r, 0}); }},
      {"length 8", true, true, [&](uint32_t r) { return raw({8, ReplyKind::kResult, 0, r, 0}); }},
      {"length 20", true, true,
       [&](uint32_t r) {
         auto bytes = raw({20, ReplyKind::kResult, 0, r, 0});
         bytes.resize(24);
         return bytes;
       }},
      {"a frame that is only announced", true, false, [&](uint32_t r) { return raw({64, ReplyKind::kResult, 0, r, 0}); }},
      {"half a header", true, false, [&](uint32_t) { return std::vector<std::byte>(8); }},
      {"a very long answer", true, true, [&](uint32_t r) { return raw({0x7ffffff8, ReplyKind::kResult, 0, r, 0}); }},
      {"request 0", true, true, [&](uint32_t) { return raw({16, ReplyKind::kResult, 0, 0, 0}); }},
      {"a request that nobody made", true, true, [&](uint32_t r) { return raw({16, ReplyKind::kResult, 0, r + 1, 0}); }},
      {"a request out of range", true, true, [&](uint32_t) { return raw({16, ReplyKind::kResult, 0, ~0u, 0}); }},
      {"no kind", true, true, [&](uint32_t r) { return raw({16, static_cast<ReplyKind>(0), 0, r, 0}); }},
      {"kind 99", true, true, [&](uint32_t r) { return raw({16, static_cast<ReplyKind>(99), 0, r, 0}); }},
      {"data over a ring", true, false, [&](uint32_t r) { return frame({0, ReplyKind::kData, 0, r, 0}, some); }},
      {"a landing without its bytes", true, false,
       [&](uint32_t) { return frame({0, ReplyKind::kLanding, 0, 0, 0}, wire::Landing{64, 64, 0, 0}); }},
      {"a chunk over a socket", false, true,
       [&](uint32_t r) { return frame({0, ReplyKind::kChunk, 0, r, 0}, wire::ChunkReady{0, 8}); }},
      {"a chunk that does not exist", true, false,
       [&](uint32_t r) { return frame({0, ReplyKind::kChunk, 0, r, 0}, wire::ChunkReady{wire::kStagingChunks, 8}); }},
      {"a chunk of nothing for nobody", true, false,
       [&](uint32_t r) { return frame({0, ReplyKind::kChunk, 0, r + 1, 0}, wire::ChunkReady{0, 0}); }},
      {"a chunk that is too long", true, false,
       [&](uint32_t r) {
         return frame({0, ReplyKind::kChunk, 0, r, 0}, wire::ChunkReady{0, static_cast<uint32_t>(wire::kChunkBytes) + 1});
       }},
      {"more data than there is room for", true, false,
       [&](uint32_t r) { return frame({0, ReplyKind::kChunk, 0, r, 0}, wire::ChunkReady{0, 801}); }},
      {"data for nobody", false, true, [&](uint32_t r) { return frame({0, ReplyKind::kData, 0, r + 1, 0}, some); }},
      {"more padding than data", false, true, [&](uint32_t r) { return frame({0, ReplyKind::kData, 9, r, 0}, some); }},
      {"data longer than its room", false, true,
       [&](uint32_t r) {
         auto bytes = raw({16 + 808, ReplyKind::kData, 7, r, 0});
         bytes.resize(bytes.size() + 808);
         return bytes;
       }},
      {"landing without a place", false, true, [&](uint32_t) { return frame({0, ReplyKind::kLanding, 0, 0, 0}, some); }},
      {"landing of another length", false, true,
       [&](uint32_t) { return frame({0, ReplyKind::kLanding, 0, 0, 0}, wire::Landing{64, 64, 0, 0}); }},
      {"landing of a length that wraps around", false, true,
       [&](uint32_t) { return frame({0, ReplyKind::kLanding, 0, 0, 0}, wire::Landing{64, ~uint64_t{0}, 0, 0}); }},
      {"a failure without a place", true, true,
       [&](uint32_t) { return frame({0, ReplyKind::kFailure, 0, 0, 1}, some); }},
  };
  // clang-format on
  for (const Carrier carrier : kCarriers)
    for (const Case& c : cases) {
      if (!(carrier == Carrier::kTcp ? c.socket : c.ring)) continue;
      checkNonsense(carrier, [&](ServerLink& link, uint32_t request) { sendRaw(link, c.make(request)); });
    }
}

TEST("a second answer to one question ends the session") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, [&](ServerLink& link) {
      SessionTestServer::loop(link, [&](const ServerLink::Frame& question) {
        const wire::ReplyHeader header{16, wire::ReplyKind::kResult, 0, question.header.request, 3};
        std::array<wire::ReplyHeader, 2> both{header, header};
        sendRaw(link, std::as_bytes(std::span(both)));
        return true;
      });
    });
    auto session = server.connect();
    Loss loss;
    loss.watch(*session);
    CHECK_EQ(waitOnce(*session), 3);
    CHECK_EQ(waitOnce(*session), kSessionLost);
    CHECK_EQ(loss.times.load(), 1);
  }
}

TEST("a reply ring whose head lies ends the session") {
  for (const uint64_t head : {uint64_t{wire::kReplyBytes} + 8, ~uint64_t{0}, uint64_t{1} << 62})
    checkNonsense(Carrier::kSharedMemory, [&](ServerLink& link, uint32_t) {
      auto& reply = link.memory().control().reply;
      reply.head.store(head);
      reply.consumerState.store(0);
      futexWake(reply.consumerState);
    });
}

TEST("random replies end the session, or do nothing, but never crash") {
  for (const Carrier carrier : kCarriers) {
    for (uint32_t seed = 1; seed <= static_cast<uint32_t>(2 * kRounds); ++seed) {
      SessionTestServer server(carrier, [&](ServerLink& link) {
        std::minstd_rand random(seed);
        SessionTestServer::loop(link, [&](const ServerLink::Frame& question) {
          std::vector<std::byte> bytes;
          for (int frames = 1 + static_cast<int>(random() % 6); frames; --frames) {
            // A frame with a plausible header around random data, sometimes with a wrong byte in the header.
            wire::ReplyHeader header{static_cast<uint32_t>(16 + 8 * (random() % 20)),
                                     static_cast<wire::ReplyKind>(random() % 8), static_cast<uint16_t>(random() % 9),
                                     random() % 2 ? question.header.request : static_cast<uint32_t>(random() % 5),
                                     static_cast<int32_t>(random() % 3)};
            const size_t body = header.bytes - sizeof(header);
            if (random() % 4 == 0)
              reinterpret_cast<unsigned char*>(&header)[random() % sizeof(header)] =
                  static_cast<unsigned char>(random());
            const auto* h = reinterpret_cast<const std::byte*>(&header);
            bytes.insert(bytes.end(), h, h + sizeof(header));
            for (size_t i = 0; i < body; ++i)
              bytes.push_back(random() % 2 ? std::byte{0} : static_cast<std::byte>(random()));
          }
          sendRaw(link, bytes);
          return false;  // and the worker exits
        });
      });
      auto session = server.connect();
      Loss loss;
      loss.watch(*session);
      session->onFailure([](int32_t, uint16_t, uint64_t) {});
      std::vector<std::byte> to(300);
      std::array<std::byte, 32> body{};
      std::vector<std::byte> whole;
      Session::Answer answer;
      answer.body = body;
      answer.data = to;
      answer.whole = &whole;
      session->wait(kOp, {1, 1}, 0, nothing, answer);
      CHECK(loss.times.load() <= 1);
    }
  }
}

// Forks

TEST("a forked child that forgets the session does not disturb it") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, [&](ServerLink& link) {
      SessionTestServer::loop(link, [&](const ServerLink::Frame& f) {
        return link.reply(wire::ReplyKind::kResult, 0, f.header.request, 4);
      });
    });
    auto session = server.connect();
    CHECK_EQ(waitOnce(*session), 4);
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child == 0) {
      session->abandon();
      const bool quiet = session->lost() && !session->post(kOp, {}, 0, nothing);
      session.release();
      std::_Exit(quiet ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(::waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(waitOnce(*session), 4);
    CHECK(!session->lost());
  }
}

}  // namespace
}  // namespace millpond
